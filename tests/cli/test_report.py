"""The report: a prediction from alphas and costs, and the comparison with plain decoding."""

from __future__ import annotations

from typing import Any

import pytest

from slipstream.cli.report import Report
from slipstream.engine.generation import Generation
from slipstream.engine.stats import RequestStats


def generation(tokens: tuple[int, ...], stats: RequestStats, **changes: Any) -> Generation:
    values: dict[str, Any] = {
        "text": "text",
        "token_ids": tokens,
        "origins": ("bonus",) * len(tokens),
        "finish_reason": "length",
        "stats": stats,
        "seed": 7,
        "verify": "coupled",
        "exact": True,
        "drafter": "prompt-lookup",
    }
    return Generation(**(values | changes))


def speculative(**changes: Any) -> Generation:
    """10 tokens in 4 cycles of k = 3: 1.2 s target, .24 s draft, .08 s rest; alphas add up to 5."""
    stats = RequestStats(
        emitted=10,
        cycles=4,
        drafted=12,
        accepted=6,
        alphas=[0.5] * 10,
        draft_seconds=0.24,
        target_seconds=1.2,
        rest_seconds=0.08,
    )
    return generation(tuple(range(10)), stats, **changes)


def plain(tokens: tuple[int, ...] = tuple(range(10))) -> Generation:
    """10 tokens in 10 cycles of .25 s."""
    stats = RequestStats(emitted=10, cycles=10, target_seconds=2.4, rest_seconds=0.1)
    return generation(tokens, stats, drafter="none")


def text_of(report: Report) -> str:
    return "\n".join("".join(text for text, _ in line) for line in report.lines())


def test_without_a_plain_run_a_pass_is_taken_to_cost_the_same_for_any_width() -> None:
    prediction = Report(model="m", k=3, result=speculative()).prediction
    assert prediction is not None
    assert prediction.assumes == "flat"
    assert prediction.tokens == pytest.approx(1 + 5 / 4)
    assert prediction.c == pytest.approx((0.24 / 12) / (1.2 / 4))
    assert prediction.speedup == pytest.approx(2.25 * 1.2 / (1.2 + 0.24))


def test_with_a_plain_run_passes_cost_what_they_took() -> None:
    report = Report(model="m", k=3, result=speculative(), plain=plain())
    prediction = report.prediction
    assert prediction is not None
    assert prediction.assumes == "measured"
    assert prediction.speedup == pytest.approx(2.25 * 0.25 / ((1.2 + 0.24 + 0.08) / 4))
    assert report.speedup == pytest.approx((10 / 1.52) / (10 / 2.5))


def test_plain_decoding_predicts_no_gain() -> None:
    prediction = Report(model="m", k=0, result=plain()).prediction
    assert prediction is not None
    assert prediction.speedup == 1.0
    assert prediction.c is None


def test_a_rule_that_reports_no_alpha_gets_no_prediction() -> None:
    result = speculative()
    result.stats.alphas.clear()
    report = Report(model="m", k=3, result=result)
    assert report.prediction is None
    assert report.as_dict()["prediction"] is None
    assert "alpha not measured" in text_of(report)


def test_alphas_that_round_above_one_are_no_error() -> None:
    result = speculative()
    result.stats.alphas[:] = [1.0000001] * 12
    prediction = Report(model="m", k=3, result=result).prediction
    assert prediction is not None
    assert prediction.tokens == 4.0


def test_the_first_difference_is_named() -> None:
    other = (0, 1, 2, 99, 4)
    report = Report(model="m", k=3, result=speculative(), plain=plain(other))
    assert report.equal is False
    assert report.as_dict()["compare"]["first_difference"] == 3
    shorter = Report(model="m", k=3, result=speculative(), plain=plain((0, 1)))
    assert shorter.first_difference == 2


def test_other_exact_rules_are_not_blamed_for_other_draws() -> None:
    result = speculative(verify="rejection")
    report = Report(model="m", k=3, result=result, plain=plain((5,)))
    assert "rejection keeps the distribution, not each seed's tokens" in text_of(report)


def test_a_lossy_rule_is_called_so() -> None:
    result = speculative(verify="typical", exact=False)
    assert "no, LOSSY: typical does not keep" in text_of(Report(model="m", k=3, result=result))
    assert "LOSSY" not in text_of(Report(model="m", k=3, result=speculative()))


@pytest.mark.parametrize("model", ["/some/where/tiny", "some/tiny/", "tiny"])
def test_the_title_is_short_however_long_the_path(model: str) -> None:
    title = Report(model=model, k=3, result=speculative()).title
    assert title == " tiny · prompt-lookup · k = 3 · coupled "
