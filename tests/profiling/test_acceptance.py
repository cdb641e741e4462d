"""Rates and intervals from records, and predictions for other depths."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from slipstream import Engine, SamplingParams
from slipstream.errors import InvalidInput
from slipstream.profiling.acceptance import Estimate, ratio, summarise
from slipstream.profiling.cost import CycleCost, DraftCost
from slipstream.profiling.engines import beside
from slipstream.profiling.prediction import (
    Costs,
    Guess,
    break_even_batch,
    guesses,
    predict,
    walk,
)
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.profiling.recording import CycleRecord, PromptRecord, record
from slipstream.theory.speedup import measured_speedup
from tests.profiling.conftest import Never

PROMPTS = [LabelledPrompt(text, "letters") for text in ("abc", "hello", "xyz!", "12 34")]
PARAMS = SamplingParams(max_tokens=70)


def cycle(accepted: int, depth: int = 4) -> CycleRecord:
    alphas = [1.0] * accepted + [0.0] * (accepted < depth)
    return CycleRecord(
        drafted=depth, depth=depth, alphas=tuple(alphas), accepted=accepted, emitted=accepted + 1
    )


def prompt(*cycles: CycleRecord) -> PromptRecord:
    tokens = sum(c.emitted for c in cycles)
    return PromptRecord(
        domain="x", prompt_tokens=5, tokens=tokens, entropy=1.0, cycles=tuple(cycles)
    )


def flat_costs(slope: float = 0.0, drafting: float = 0.0) -> Costs:
    return Costs(
        cycles=CycleCost(
            context=10,
            batch=1,
            rows=(1, 2, 21),
            seconds=(1.0, 1.0 + slope, 1.0 + 20 * slope),
            low=(1.0,) * 3,
            high=(1.0,) * 3,
            count=1,
        ),
        emission=0.0,
        drafting=DraftCost(depths=(1, 2), seconds=(drafting, 2 * drafting)),
    )


def test_the_four_rates_are_what_their_names_say() -> None:
    got = summarise([prompt(cycle(2), cycle(0)), prompt(cycle(4), cycle(0))])
    assert [round(e.value, 3) for e in got.conditional] == [0.5, 1.0, 0.5, 1.0]
    assert [round(e.value, 3) for e in got.marginal] == [0.5, 0.5, 0.25, 0.25]
    assert got.alpha.value == pytest.approx(6 / 9)
    assert got.distance == pytest.approx(1 / 3)
    assert got.tokens_per_cycle.value == 10 / 4
    assert got.hit_rate.value == 1.0


def test_an_interval_over_prompts_covers_the_truth() -> None:
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(200):
        rates = rng.beta(3, 2, 40)
        counts = rng.integers(20, 60, 40)
        estimate = ratio(rng.binomial(counts, rates).astype(float), counts.astype(float))
        hits += estimate.low <= 0.6 <= estimate.high
    assert 175 <= hits <= 199


def test_one_prompt_has_no_interval_and_none_is_made_up() -> None:
    got = summarise([prompt(cycle(2), cycle(0))])
    assert got.alpha.value == pytest.approx(0.5)
    assert math.isnan(got.alpha.low) and math.isnan(got.alpha.high)
    assert json.loads(json.dumps(got.as_dict(), allow_nan=False))["alpha"]["low"] is None


def test_a_drafter_that_never_hits_has_unknown_rates(engine: Engine) -> None:
    records = record(beside(engine, drafter=Never(), k=4), PROMPTS, PARAMS)
    got = summarise(records)
    assert got.hit_rate.value == 0.0 and got.alphas == ()
    assert math.isnan(got.alpha.value) and got.tokens_per_cycle.value == 1.0
    curve = predict(records, flat_costs(), 4)
    assert curve.best == 0 and [e.value for e in curve.speedups] == [1.0] * 5
    json.dumps(got.as_dict(), allow_nan=False)


def test_failures_in_runs_are_told_from_independent_ones() -> None:
    runs = summarise([prompt(*[cycle(0)] * 10, *[cycle(3)] * 10)] * 3)
    mixed = summarise([prompt(*[cycle(0), cycle(3)] * 10)] * 3)
    assert runs.failure_clustering.value > 1.5 > 0.5 > mixed.failure_clustering.value


def test_the_walk_at_the_recorded_depth_is_the_record() -> None:
    cycles = [cycle(2), cycle(4), cycle(0), cycle(1)]
    tokens, limits = guesses(cycles)
    walked = walk(tokens, limits, 4)
    assert walked.emitted == [3, 5, 1, 2]
    assert tokens[:3] == [Guess.RIGHT, Guess.RIGHT, Guess.WRONG]


def test_a_shallower_walk_cuts_runs_of_right_guesses() -> None:
    tokens, limits = guesses([cycle(4), cycle(0), cycle(0)])
    # Four right ones, one after them that is taken to be as the next, wrong.
    assert walk(tokens, limits, 1).emitted == [2, 2, 1, 1, 1]
    assert walk(tokens, limits, 2).emitted == [3, 2, 1, 1]


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8])
def test_a_prediction_from_deep_drafts_is_what_a_run_at_k_does(engine: Engine, k: int) -> None:
    """Tokens per cycle, which cost nothing to check exactly: the oracle errs at known places."""
    deep = record(engine, PROMPTS, PARAMS)
    run = record(beside(engine, drafter=engine.drafter, k=k), PROMPTS, PARAMS)
    actual = sum(r.tokens for r in run) / sum(len(r.cycles) for r in run)
    assert predict(deep, flat_costs(), k).tokens[k] == pytest.approx(actual, rel=0.05)


def test_a_prediction_of_independent_guesses_is_the_closed_form() -> None:
    rng = np.random.default_rng(0)
    alpha, deepest = 0.7, 12
    cycles = []
    for _ in range(4000):
        accepted = int(min(rng.geometric(1 - alpha) - 1, deepest))
        cycles.append(cycle(accepted, deepest))
    curve = predict([prompt(*cycles)], flat_costs(slope=0.05, drafting=0.1), deepest)
    for k in (1, 3, 6):
        tokens = (1 - alpha ** (k + 1)) / (1 - alpha)
        expected = measured_speedup(
            tokens, k, pass_time=lambda rows: 1 + 0.05 * (rows - 1), draft_time=0.1
        )
        assert curve.speedups[k].value == pytest.approx(expected, rel=0.02)


def test_a_batch_from_which_on_nothing_pays_is_found() -> None:
    records = [prompt(*[cycle(1), cycle(0)] * 20)] * 2
    assert break_even_batch(records, flat_costs(slope=0.0), 4) is None
    assert break_even_batch(records, flat_costs(slope=0.2), 4) in (2, 3, 4, 6, 8)
    assert break_even_batch(records, flat_costs(slope=1.0), 4) == 1


def test_prompts_that_do_not_fit_are_left_out_unless_none_does(engine: Engine) -> None:
    long = LabelledPrompt("x" * 5000, "long")
    assert len(record(engine, [long, PROMPTS[0]], PARAMS)) == 1
    with pytest.raises(InvalidInput, match="none of 1 prompts fits"):
        record(engine, [long], PARAMS)


def test_estimates_are_plain_tuples() -> None:
    assert Estimate(1.0, 0.5, 2.0)._asdict() == {"value": 1.0, "low": 0.5, "high": 2.0}
