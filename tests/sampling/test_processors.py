from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from transformers.generation import logits_process as hf

from slipstream.config import SamplingParams
from slipstream.errors import InvalidInput, NumericalError
from slipstream.sampling import processors
from slipstream.sampling.processors import process_logits

SIZE = 1000
PROMPT, OUTPUT = [3, 5, 7, 7, 900], [5, 11, 11, 12]


def some_logits(seed: int, size: int = SIZE, spread: float = 3.0) -> np.ndarray:
    return (spread * np.random.default_rng(seed).standard_normal(size)).astype(np.float32)


def tied_logits(seed: int) -> np.ndarray:
    """Few distinct values, so that every cut falls on ties."""
    return np.random.default_rng(seed).integers(-6, 6, SIZE).astype(np.float32)


def hugging_face(logits: np.ndarray, *chain: hf.LogitsProcessor) -> np.ndarray:
    ids = torch.tensor([PROMPT + OUTPUT])
    scores = torch.from_numpy(logits.copy())[None]
    for processor in chain:
        scores = processor(ids, scores)
    return torch.softmax(scores, dim=-1)[0].numpy()


CASES = {
    "temperature": ({"temperature": 0.7}, [hf.TemperatureLogitsWarper(0.7)]),
    "top_k": ({"temperature": 1.0, "top_k": 50}, [hf.TopKLogitsWarper(50)]),
    "top_k of 1": ({"temperature": 1.0, "top_k": 1}, [hf.TopKLogitsWarper(1)]),
    "top_k beyond the vocabulary": (
        {"temperature": 1.0, "top_k": 5000},
        [hf.TopKLogitsWarper(5000)],
    ),
    "top_p": ({"temperature": 1.0, "top_p": 0.9}, [hf.TopPLogitsWarper(0.9)]),
    "top_p tiny": ({"temperature": 1.0, "top_p": 1e-6}, [hf.TopPLogitsWarper(1e-6)]),
    "top_p nearly 1": ({"temperature": 1.0, "top_p": 0.999}, [hf.TopPLogitsWarper(0.999)]),
    "min_p": ({"temperature": 1.0, "min_p": 0.1}, [hf.MinPLogitsWarper(0.1)]),
    "min_p of 1": ({"temperature": 1.0, "min_p": 1.0}, [hf.MinPLogitsWarper(1.0)]),
    "repetition_penalty": (
        {"temperature": 1.0, "repetition_penalty": 1.3},
        [hf.RepetitionPenaltyLogitsProcessor(1.3)],
    ),
    "logit_bias": (
        {"temperature": 1.0, "logit_bias": {2: 3.5, 999: -4.0}},
        [hf.SequenceBiasLogitsProcessor([[[2], 3.5], [[999], -4.0]])],
    ),
    "banned": (
        {"temperature": 1.0, "banned_token_ids": (1, 17)},
        [hf.SuppressTokensLogitsProcessor([1, 17])],
    ),
    "all together": (
        {
            "temperature": 0.8,
            "top_k": 200,
            "top_p": 0.95,
            "min_p": 0.02,
            "repetition_penalty": 1.1,
            "logit_bias": {4: 2.0, 5: -1.0},
            "banned_token_ids": (6, 7),
        },
        [
            hf.SequenceBiasLogitsProcessor([[[4], 2.0], [[5], -1.0]]),
            hf.RepetitionPenaltyLogitsProcessor(1.1),
            hf.SuppressTokensLogitsProcessor([6, 7]),
            hf.TemperatureLogitsWarper(0.8),
            hf.TopKLogitsWarper(200),
            hf.TopPLogitsWarper(0.95),
            hf.MinPLogitsWarper(0.02),
        ],
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_processors_equal_hugging_faces(case: str, array) -> None:
    settings, chain = CASES[case]
    for seed in range(5):
        expected = hugging_face(some_logits(seed), *chain)
        params = SamplingParams(**settings)
        got = np.asarray(process_logits(array(some_logits(seed)), params, PROMPT, OUTPUT))
        assert ((got > 0) == (expected > 0)).all()
        np.testing.assert_allclose(got, expected, rtol=2e-5, atol=1e-9)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_processors_equal_hugging_faces_where_every_cut_falls_on_ties(case: str, array) -> None:
    """Which of equal tokens top-p keeps is open there (its sort is not stable); how many is not."""
    settings, chain = CASES[case]
    for seed in range(5):
        expected = hugging_face(tied_logits(seed), *chain)
        params = SamplingParams(**settings)
        got = np.asarray(process_logits(array(tied_logits(seed)), params, PROMPT, OUTPUT))
        np.testing.assert_allclose(np.sort(got), np.sort(expected), rtol=2e-5, atol=1e-9)
        if "top_p" not in settings:
            assert ((got > 0) == (expected > 0)).all()


def test_top_p_keeps_the_lower_of_equal_ids() -> None:
    params = SamplingParams(temperature=1.0, top_p=0.5)
    got = process_logits(np.zeros(8, np.float32), params, [], [])
    assert np.flatnonzero(got).tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("spread", [0.0, 0.1, 4.0])
@pytest.mark.parametrize("top_p", [0.3, 0.9, 0.9999])
def test_top_p_equals_a_full_sort_on_a_large_vocabulary(spread: float, top_p: float) -> None:
    logits = some_logits(0, 30_000, spread)
    got = process_logits(logits, SamplingParams(temperature=1.0, top_p=top_p), [], [])
    probs = np.exp(logits.astype(np.float64) - logits.max())
    probs /= probs.sum()
    running = np.cumsum(np.sort(probs)[::-1])
    assert abs(int((got > 0).sum()) - (int((running < top_p).sum()) + 1)) <= 1


def test_top_p_reaches_its_mass_in_spite_of_rounding() -> None:
    got = process_logits(
        np.zeros(10, np.float32), SamplingParams(temperature=1.0, top_p=0.9), [], []
    )
    assert (got > 0).sum() == 9


def test_presence_and_frequency_penalties_are_openais_on_output_tokens() -> None:
    logits = some_logits(1)
    expected = logits.astype(np.float64)
    for token in set(OUTPUT):
        expected[token] -= 0.5 + 0.25 * OUTPUT.count(token)
    expected = np.exp(expected - expected.max())
    params = SamplingParams(temperature=1.0, presence_penalty=0.5, frequency_penalty=0.25)
    got = process_logits(logits, params, PROMPT, OUTPUT)
    np.testing.assert_allclose(got, expected / expected.sum(), rtol=1e-5)
    assert (
        process_logits(logits, params, PROMPT, [])
        == process_logits(logits, SamplingParams(temperature=1.0), [], [])
    ).all()


def test_only_allowed_tokens_have_probability() -> None:
    params = SamplingParams(temperature=1.0, allowed_token_ids=(4, 2, 9), banned_token_ids=(9,))
    got = process_logits(some_logits(2), params, [], [])
    assert np.flatnonzero(got).tolist() == [2, 4]
    assert float(got.sum()) == pytest.approx(1.0)


@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_greedy_is_exactly_one_hot_with_ties_to_the_lowest_id(array) -> None:
    logits = some_logits(3)
    logits[[40, 400, 4]] = 50.0
    got = np.asarray(process_logits(array(logits), SamplingParams(), [], []))
    assert got.dtype == np.float32
    assert np.flatnonzero(got).tolist() == [4]
    assert got[4] == 1.0


def test_greedy_sees_penalties_and_masks() -> None:
    logits = np.array([3.0, 2.5, 1.0], np.float32)
    assert process_logits(logits, SamplingParams(repetition_penalty=2.0), [0], [])[1] == 1.0
    assert process_logits(logits, SamplingParams(frequency_penalty=1.0), [], [0])[1] == 1.0
    assert process_logits(logits, SamplingParams(banned_token_ids=(0, 1)), [], [])[2] == 1.0
    assert process_logits(logits, SamplingParams(logit_bias={2: 5.0}), [], [])[2] == 1.0


@pytest.mark.parametrize("temperature", [1e-4, 1e-12, 1e-300, math.ulp(0.0)])
def test_cold_temperatures_become_greedy_without_overflow(temperature: float) -> None:
    got = process_logits(some_logits(4), SamplingParams(temperature=temperature), [], [])
    assert (got == process_logits(some_logits(4), SamplingParams(), [], [])).all()


@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
@pytest.mark.parametrize(
    "settings", [{}, {"temperature": 1.0}, {"temperature": 1.0, "top_k": 3, "top_p": 0.5}]
)
def test_broken_rows_are_errors_never_tokens(array, settings: dict) -> None:
    params = SamplingParams(**settings)
    for bad in (math.nan, math.inf):
        logits = some_logits(5)
        logits[17] = bad
        with pytest.raises(NumericalError, match="logits contain"):
            process_logits(array(logits), params, [], [])
    with pytest.raises(NumericalError, match="every token is masked"):
        process_logits(array(np.full(9, -np.inf, np.float32)), params, [], [])


def test_nan_behind_a_mask_is_still_an_error() -> None:
    logits = some_logits(5)
    logits[17] = math.nan
    with pytest.raises(NumericalError, match="NaN"):
        process_logits(logits, SamplingParams(banned_token_ids=(17,)), [], [])


def test_masks_that_leave_nothing_are_an_error() -> None:
    with pytest.raises(NumericalError, match="every token is masked"):
        process_logits(np.zeros(3, np.float32), SamplingParams(banned_token_ids=(0, 1, 2)), [], [])


@pytest.mark.parametrize(
    "settings",
    [{"logit_bias": {1000: 1.0}}, {"allowed_token_ids": (1, 1000)}, {"banned_token_ids": (1000,)}],
)
def test_tokens_outside_the_vocabulary_are_refused(settings: dict) -> None:
    with pytest.raises(InvalidInput, match=r"token 1000, outside the vocabulary \[0, 1000\)"):
        process_logits(some_logits(0), SamplingParams(**settings), [], [])


def test_inputs_are_never_written_to() -> None:
    logits = some_logits(6)
    before = logits.copy()
    settings, _ = CASES["all together"]
    for extra in ({}, {"allowed_token_ids": (3, 4, 5)}, {"temperature": 0.0}):
        process_logits(logits, SamplingParams(**{**settings, **extra}), PROMPT, OUTPUT)
    assert (logits == before).all()


def test_the_top_token_survives_every_filter() -> None:
    for seed in range(20):
        logits = some_logits(seed)
        params = SamplingParams(temperature=1.3, top_k=5, top_p=1e-9, min_p=1.0)
        got = process_logits(logits, params, [], [])
        assert got[logits.argmax()] == 1.0


def test_probabilities_are_float32_and_sum_to_one() -> None:
    for settings, _ in CASES.values():
        got = process_logits(some_logits(7), SamplingParams(**settings), PROMPT, OUTPUT)
        assert got.dtype == np.float32
        assert float(got.sum(dtype=np.float64)) == pytest.approx(1.0, abs=1e-6)


def test_each_processor_alone_leaves_the_input_as_it_is_when_off() -> None:
    logits = some_logits(8)
    assert processors.logit_bias(logits, {}) is logits
    assert processors.repetition_penalty(logits, 1.0, PROMPT, OUTPUT) is logits
    assert processors.presence_and_frequency_penalty(logits, 0.0, 0.0, OUTPUT) is logits
    assert processors.ban(logits, ()) is logits
    assert processors.top_k(logits, 0) is logits
    assert processors.top_p(logits, 1.0) is logits
    assert processors.min_p(logits, 0.0) is logits
