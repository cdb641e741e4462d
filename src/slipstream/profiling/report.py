"""A profile for people: lines for the terminal, and one HTML file that needs nothing else."""

from __future__ import annotations

import json
from html import escape
from math import isnan

from slipstream.profiling.acceptance import Acceptance, Estimate
from slipstream.profiling.plots import Line, diagonal_plot, line_plot
from slipstream.profiling.profile import Check, DrafterProfile, Profile

_STYLE = """
:root{color-scheme:light dark;--fg:#1d2330;--bg:#fff;--soft:#8884}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8ee;--bg:#14171d}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);
max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;display:block;overflow-x:auto}
td,th{padding:.25rem .8rem .25rem 0;text-align:left;border-bottom:1px solid var(--soft);
white-space:nowrap;font-variant-numeric:tabular-nums}
.plots{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0;flex:1 1 420px;max-width:480px}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
.grid{stroke:var(--soft)}.mark{stroke:currentColor;stroke-dasharray:4 3;fill:none;opacity:.6}
.legend span{margin-right:1em;font-size:12px}.legend i{display:inline-block;width:.8em;height:.8em;
margin-right:.3em;border-radius:2px}.note{opacity:.75}
"""


def spell(estimate: Estimate, unit: str = "") -> str:
    """A value and its interval; says so where there is none."""
    if isnan(estimate.value):
        return "unknown"
    text = f"{estimate.value:.2f}{unit}"
    return text if isnan(estimate.low) else f"{text} [{estimate.low:.2f}, {estimate.high:.2f}]"


def advice(entry: DrafterProfile) -> str:
    """What to do with a drafter, in a sentence or two."""
    where = f"{entry.drafter} at T = {entry.temperature:g}: "
    best = entry.curve.best
    if not entry.overall.hit_rate.value:
        return where + "never had a draft on these prompts; decode plainly (--drafter none)"
    if best == 0:
        return where + "no k is predicted to pay on these prompts; decode plainly (--drafter none)"
    speedup = entry.curve.speedups[best]
    text = f"{where}{spell(speedup, '×')} at k = {best}"
    domains = sorted(
        ((c.speedups[best].value, d) for d, c in entry.domain_curves.items()), reverse=True
    )
    if len(domains) > 1:
        shown = domains if len(domains) <= 3 else [domains[0], domains[-1]]
        text += "; " + ", ".join(f"{domain} {value:.2f}×" for value, domain in shown)
    if not isnan(speedup.low) and speedup.low < 1:
        text += "; the interval includes 1: profile more prompts before relying on it"
    if entry.overall.prompts < 2:
        text += "; from one prompt, so nobody knows how much others differ"
    if entry.quit_batch is not None:
        text += f"; don't speculate from batch {entry.quit_batch} on"
    return text


def table(found: Profile) -> list[list[str]]:
    """The figures of every drafter and temperature, a header first."""
    rows = [["drafter", "T", "alpha", "D_TV", "has a draft", "best k", "tokens/cycle", "speedup"]]
    for entry in found.drafters:
        overall, best = entry.overall, entry.curve.best
        distance = "unknown" if isnan(overall.distance) else f"{overall.distance:.2f}"
        rows.append(
            [
                entry.drafter,
                f"{entry.temperature:g}",
                spell(overall.alpha),
                distance,
                f"{overall.hit_rate.value:.0%}",
                str(best),
                f"{entry.curve.tokens[best]:.2f}",
                spell(entry.curve.speedups[best], "×"),
            ]
        )
    return rows


def describe_check(check: Check) -> str:
    """A prediction and what became of it."""
    measured = check.measured
    text = f"k = {measured.k}: measured {spell(measured.speedup, '×')}"
    if check.predicted is not None and check.error is not None:
        text += f", predicted {check.predicted:.2f}× (off by {check.error:+.1%})"
    rate = f", {measured.tokens_per_second:.0f} tokens/s"
    return text + rate + ("" if measured.same_tokens else ", other tokens than plain decoding's")


def html(found: Profile) -> str:
    """The whole report as one self-contained page; the figures are in it as JSON as well."""
    title = f"Slipstream profile of {found.model}"
    data = json.dumps(found.as_dict()).replace("</", "<\\/")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            f'<p class="note">{found.prompts} prompts, {escape(found.backend)}, rule '
            f"{escape(found.verify)}. Intervals: 95 %, bootstrap over prompts.</p>",
            "<h2>What to do</h2><ul>",
            *(f"<li>{escape(advice(entry))}</li>" for entry in found.drafters),
            *(
                f"<li>{escape(name)} was left out: {escape(why)}</li>"
                for name, why in found.left_out.items()
            ),
            "</ul>",
            _html_table(table(found)),
            *_checks(found),
            "<h2>Speedup over k, predicted</h2>",
            '<div class="plots">',
            line_plot([_speedups(e) for e in found.drafters], "k", "speedup", mark=1.0),
            *(_domains(entry) for entry in found.drafters if len(entry.domains) > 1),
            "</div><h2>Acceptance by position</h2>",
            '<div class="plots">',
            *(_positions(entry) for entry in found.drafters),
            "</div>",
            *(_by_domain(entry) for entry in found.drafters),
            "<h2>Cost of a cycle</h2>",
            '<p class="note">Milliseconds of a cycle without drafting, by rows of the pass; '
            "medians fitted to be non-decreasing.</p>",
            f'<div class="plots">{_cost(found)}</div>',
            f'<script type="application/json" id="profile">{data}</script></body></html>',
        ]
    )


def _checks(found: Profile) -> list[str]:
    if not found.checks:
        return []
    points = [
        (f"k = {c.measured.k}", c.predicted, c.measured.speedup.value)
        for c in found.checks
        if c.predicted is not None
    ]
    return [
        "<h2>Predicted and measured</h2><ul>",
        *(f"<li>{escape(c.drafter)}, {escape(describe_check(c))}</li>" for c in found.checks),
        '</ul><div class="plots">',
        diagonal_plot(points, "predicted speedup", "measured speedup") if points else "",
        "</div>",
    ]


def _speedups(entry: DrafterProfile) -> Line:
    estimates = entry.curve.speedups
    return Line(
        label=f"{entry.drafter}, T = {entry.temperature:g}",
        xs=range(len(estimates)),
        ys=[e.value for e in estimates],
        lows=[e.low for e in estimates],
        highs=[e.high for e in estimates],
    )


def _domains(entry: DrafterProfile) -> str:
    lines = [
        Line(label=d, xs=range(len(c.speedups)), ys=[e.value for e in c.speedups])
        for d, c in entry.domain_curves.items()
    ]
    return line_plot(lines, f"k ({entry.drafter}, T = {entry.temperature:g})", "speedup", mark=1.0)


def _positions(entry: DrafterProfile) -> str:
    def line(label: str, estimates: tuple[Estimate, ...]) -> Line:
        return Line(
            label=label,
            xs=range(1, len(estimates) + 1),
            ys=[e.value for e in estimates],
            lows=[e.low for e in estimates],
            highs=[e.high for e in estimates],
        )

    overall = entry.overall
    return line_plot(
        [
            line("alpha", overall.alphas),
            line("conditional acceptance", overall.conditional),
            line("marginal acceptance", overall.marginal),
        ],
        f"position ({entry.drafter}, T = {entry.temperature:g})",
        "acceptance",
    )


def _by_domain(entry: DrafterProfile) -> str:
    header = ["domain", "prompts", "alpha", "D_TV", "has a draft", "best k", "speedup"]
    rows = [[*header, "failures cluster", "entropy (nats)"]]
    groups: dict[str, Acceptance] = {"all": entry.overall} | entry.domains
    for domain, acceptance in groups.items():
        curve = entry.domain_curves.get(domain, entry.curve)
        if domain == "all":
            curve = entry.curve
        rows.append(
            [
                domain,
                str(acceptance.prompts),
                spell(acceptance.alpha),
                "unknown" if isnan(acceptance.distance) else f"{acceptance.distance:.2f}",
                f"{acceptance.hit_rate.value:.0%}",
                str(curve.best),
                spell(curve.speedups[curve.best], "×"),
                spell(acceptance.failure_clustering, "×"),
                spell(acceptance.entropy),
            ]
        )
    heading = f"{entry.drafter} at T = {entry.temperature:g}, by domain"
    return f"<h2>{escape(heading)}</h2>{_html_table(rows)}"


def _cost(found: Profile) -> str:
    lines = [
        Line(
            label=f"context {c.context}",
            xs=c.rows,
            ys=[1e3 * s for s in c.seconds],
            lows=[1e3 * s for s in c.low],
            highs=[1e3 * s for s in c.high],
        )
        for c in (found.cycles, *found.further)
    ]
    return line_plot(lines, "rows", "ms")


def _html_table(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><tr>{head}</tr>{body}</table>"
