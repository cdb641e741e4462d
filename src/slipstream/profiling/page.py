"""A profile as one HTML page that needs nothing else: no script, no font, no network."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from math import isnan
from typing import Any

from slipstream.profiling.acceptance import Acceptance, Estimate
from slipstream.profiling.findings import DrafterProfile, Profile
from slipstream.profiling.plots import Line, diagonal_plot, line_plot
from slipstream.profiling.report import (
    advice,
    describe_check,
    in_short,
    positions,
    spell,
    table,
)
from slipstream.profiling.traces import TracedAcceptance

_STYLE = """
:root{color-scheme:light dark;--fg:#1d2330;--bg:#fff;--soft:#8884}
@media(prefers-color-scheme:dark){:root{--fg:#e6e8ee;--bg:#14171d}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--fg);background:var(--bg);
max-width:1000px;margin:2rem auto;padding:0 1rem}
h1{font-size:1.6rem}h2{font-size:1.15rem;margin-top:2rem}h3{font-size:.9rem;margin:0}
ul{padding-left:1.2rem}
table{border-collapse:collapse;display:block;overflow-x:auto;margin:0 0 1rem}
td,th{padding:.25rem .8rem .25rem 0;text-align:left;border-bottom:1px solid var(--soft);
white-space:nowrap;font-variant-numeric:tabular-nums}
.plots{display:flex;flex-wrap:wrap;gap:1rem}figure{margin:0;flex:1 1 420px;max-width:480px}
svg{width:100%;height:auto}svg text{font-size:11px;fill:currentColor}
.grid{stroke:var(--soft)}.mark{stroke:currentColor;stroke-dasharray:4 3;fill:none;opacity:.6}
.legend span{display:inline-block;margin-right:1em;font-size:12px}
.legend i{display:inline-block;width:.8em;height:.8em;margin-right:.3em;border-radius:2px}
.note{opacity:.75}
@media(max-width:500px){svg text{font-size:14px}}
"""


def html(found: Profile) -> str:
    """The whole report; the figures are in it as JSON as well."""
    body = [
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
        line_plot(
            [_speedups(e) for e in found.drafters], "k", "speedup", title="all prompts", mark=1.0
        ),
        *(_domains(entry) for entry in found.drafters if len(entry.domains) > 1),
        "</div><h2>Acceptance by position</h2>",
        '<div class="plots">',
        *(_positions(_name(entry), entry.overall) for entry in found.drafters),
        "</div>",
        *(_by_domain(entry) for entry in found.drafters),
        "<h2>Cost of a cycle</h2>",
        '<p class="note">Milliseconds of a cycle without drafting, by rows of the pass; '
        "medians fitted to be non-decreasing.</p>",
        f'<div class="plots">{_cost(found)}</div>',
    ]
    return _page(f"Slipstream profile of {found.model}", body, found.as_dict())


def traces_html(found: Sequence[TracedAcceptance]) -> str:
    """Acceptance in recorded traces, as a page of the same kind."""
    body = []
    for traced in found:
        name = traced.setting
        body += [
            f"<h2>{escape(traced.model)}, {escape(name)}</h2>",
            f"<p>{escape(in_short(traced.overall))}</p>",
            *(f'<p class="note">{escape(note)}</p>' for note in traced.notes),
            _html_table(positions(traced)),
            f'<div class="plots">{_positions(name, traced.overall)}</div>',
        ]
        if len(traced.domains) > 1:
            body += ["<ul>"]
            body += [
                f"<li>{escape(domain)}: {escape(in_short(acceptance))}</li>"
                for domain, acceptance in traced.domains.items()
            ]
            body += ["</ul>"]
    return _page("Acceptance in recorded traces", body, [traced.as_dict() for traced in found])


def _page(title: str, body: Sequence[str], figures: Any) -> str:
    data = json.dumps(figures).replace("</", "<\\/")
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width,initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{escape(title)}</h1>",
            *body,
            f'<script type="application/json" id="profile">{data}</script></body></html>',
        ]
    )


def _name(entry: DrafterProfile) -> str:
    return f"{entry.drafter}, T = {entry.temperature:g}"


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
        label=_name(entry),
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
    return line_plot(lines, "k", "speedup", title=_name(entry), mark=1.0)


def _positions(name: str, overall: Acceptance) -> str:
    def line(label: str, estimates: tuple[Estimate, ...]) -> Line:
        return Line(
            label=label,
            xs=range(1, len(estimates) + 1),
            ys=[e.value for e in estimates],
            lows=[e.low for e in estimates],
            highs=[e.high for e in estimates],
        )

    return line_plot(
        [
            line("alpha", overall.alphas),
            line("conditional acceptance", overall.conditional),
            line("marginal acceptance", overall.marginal),
        ],
        "position",
        "acceptance",
        title=name,
        reach=1.0,
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
    return line_plot(lines, "rows of the pass", "ms")


def _html_table(rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(cell)}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows[1:]
    )
    return f"<table><tr>{head}</tr>{body}</table>"
