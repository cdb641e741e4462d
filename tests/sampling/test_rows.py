from __future__ import annotations

import numpy as np
import pytest
import torch

from slipstream.config import SamplingParams
from slipstream.errors import NumericalError
from slipstream.sampling import rows as rows_module
from slipstream.sampling.logprobs import log_softmax, token_logprob
from slipstream.sampling.noise import Noise
from slipstream.sampling.processors import process_logits
from slipstream.sampling.race import race
from slipstream.sampling.rows import ProcessedRows
from slipstream.types import SequenceState, TokenTree

PARAMS = SamplingParams(
    temperature=0.9, repetition_penalty=1.3, presence_penalty=0.4, frequency_penalty=0.3
)
TREE = TokenTree(tokens=(4, 5, 6, 4), parents=(-1, -1, 0, 2))


def state(params: SamplingParams = PARAMS) -> SequenceState:
    return SequenceState(uid=0, tokens=[1, 2, 3, 4], prompt_length=2, params=params, seed=0)


def some_logits(rows: int = 5, size: int = 12) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((rows, size)).astype(np.float32)


@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_each_row_is_processed_with_its_own_drafted_prefix(array) -> None:
    logits = array(some_logits())
    rows = ProcessedRows(logits, PARAMS, state(), TREE)
    prefixes = [[], [4], [5], [4, 6], [4, 6, 4]]
    assert len(rows) == 5
    for row, drafted in enumerate(prefixes):
        expected = process_logits(logits[row], PARAMS, [1, 2], [3, 4, *drafted])
        assert (rows[row] == expected).all()


@pytest.mark.parametrize("size", [12, 3000])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
@pytest.mark.parametrize("looked_at_first", [False, True])
def test_picks_and_masses_are_those_of_the_distributions(
    size: int, temperature: float, looked_at_first: bool
) -> None:
    noise = Noise(7).cycle(4)
    for params in (
        SamplingParams(temperature=temperature),
        SamplingParams(temperature=temperature, repetition_penalty=1.3, banned_token_ids=(2,)),
    ):
        logits = some_logits(size=size)
        rows, same = (ProcessedRows(logits, params, state(params), TREE) for _ in range(2))
        for row in range(len(rows)):
            if looked_at_first:
                assert rows[row] is rows[row]
            token = rows.pick(row, noise, 3)
            assert [token] == race(same[row], noise.pick(3))
            for tokens in ((token,), (1, 7), (1, token) if token != 1 else ()):
                assert rows.mass(row, tokens) == pytest.approx(sum(same[row][list(tokens)]))
            assert (rows[row] == same[row]).all()


def test_picks_refuse_broken_logits() -> None:
    for temperature in (0.0, 0.9):
        params = SamplingParams(temperature=temperature)
        logits = some_logits(size=3000)
        logits[1, 5] = np.nan
        rows = ProcessedRows(logits, params, state(params), TREE)
        rows.pick(0, Noise(0).cycle(4), 0)
        with pytest.raises(NumericalError):
            rows.pick(1, Noise(0).cycle(4), 0)


def test_only_rows_that_are_looked_at_are_processed_and_only_once(monkeypatch) -> None:
    calls = []

    def counted(*args):
        calls.append(args)
        return process_logits(*args)

    monkeypatch.setattr(rows_module, "process_logits", counted)
    rows = ProcessedRows(some_logits(), PARAMS, state(), TREE)
    assert not calls
    assert rows[2] is rows[2]
    assert len(calls) == 1


def test_a_broken_row_is_an_error_only_where_it_is_looked_at() -> None:
    logits = some_logits()
    logits[3, 0] = np.nan
    rows = ProcessedRows(logits, PARAMS, state(), TREE)
    rows[0], rows[1]
    with pytest.raises(NumericalError):
        rows[3]


def test_tokens_appended_later_do_not_reach_the_rows() -> None:
    sequence = state()
    rows = ProcessedRows(some_logits(), PARAMS, sequence, TREE)
    sequence.tokens += [7, 8]
    expected = process_logits(some_logits()[0], PARAMS, [1, 2], [3, 4])
    assert (rows[0] == expected).all()


@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_logprobs_are_the_models_own(array) -> None:
    logits = some_logits(1, 300)[0]
    expected = torch.log_softmax(torch.from_numpy(logits), -1).numpy()
    np.testing.assert_allclose(np.asarray(log_softmax(array(logits))), expected, atol=1e-6)
    report = token_logprob(array(logits), 7, 3)
    assert report.token == 7
    assert report.logprob == pytest.approx(expected[7], abs=1e-6)
    assert [token for token, _ in report.top] == np.argsort(-expected)[:3].tolist()
    assert report.as_dict()["top"][0]["logprob"] == pytest.approx(expected.max(), abs=1e-6)


def test_top_logprobs_break_ties_to_the_lowest_id_and_may_be_none_or_all() -> None:
    logits = np.array([0.0, 1.0, 1.0, 1.0, -1.0], np.float32)
    assert [token for token, _ in token_logprob(logits, 0, 2).top] == [1, 2]
    assert token_logprob(logits, 0, 0).top == ()
    assert [token for token, _ in token_logprob(logits, 0, 100).top] == [1, 2, 3, 0, 4]
