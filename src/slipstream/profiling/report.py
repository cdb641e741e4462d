"""A profile in words: intervals, advice, the table and what became of a prediction."""

from __future__ import annotations

from math import isnan

from slipstream.profiling.acceptance import Acceptance, Estimate
from slipstream.profiling.findings import Check, DrafterProfile, Profile
from slipstream.profiling.traces import TracedAcceptance
from slipstream.theory.speedup import expected_tokens_by_position


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


def positions(traced: TracedAcceptance) -> list[list[str]]:
    """Acceptance by drafted position, a header first; the last column is the theory's.

    It has what a cycle drafted so deep is expected to emit, from the alphas up to there.
    """
    overall = traced.overall
    rows = [["position", "alpha", "conditional", "marginal", "tokens"]]
    alphas: list[float] = []
    for i, alpha in enumerate(overall.alphas):
        alphas.append(alpha.value)
        known = not any(isnan(value) for value in alphas)
        rows.append(
            [
                str(i + 1),
                spell(alpha),
                spell(overall.conditional[i]),
                spell(overall.marginal[i]),
                f"{expected_tokens_by_position(alphas):.2f}" if known else "unknown",
            ]
        )
    return rows


def in_short(acceptance: Acceptance) -> str:
    """What isn't told by position, in a line."""
    distance = "unknown" if isnan(acceptance.distance) else f"{acceptance.distance:.2f}"
    return (
        f"{acceptance.prompts} prompt{'s' * (acceptance.prompts != 1)}, "
        f"{acceptance.tokens} tokens in {acceptance.cycles} cycles, "
        f"{acceptance.hit_rate.value:.0%} with a draft: "
        f"{spell(acceptance.tokens_per_cycle)} tokens per cycle, alpha {spell(acceptance.alpha)}, "
        f"D_TV {distance}, failures cluster {spell(acceptance.failure_clustering, '×')}, "
        f"entropy {spell(acceptance.entropy)} nats"
    )
