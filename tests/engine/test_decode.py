"""The loop keeps the plain text, ends requests at their earliest event, and stays level."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from slipstream import Engine, Generation, SamplingParams
from slipstream.config import EngineConfig
from slipstream.drafters.base import Drafter, Stateless
from slipstream.drafters.draft_model import DraftModel
from slipstream.drafters.vocabulary import align_vocabulary
from slipstream.errors import InvalidInput, NumericalError, PromptTooLong
from slipstream.models.base import FeatureRequest, ForwardOutput, Rows
from slipstream.models.tokenizer import Tokenizer
from tests.engine.conftest import EOS
from tests.engine.table_model import TableModel

SIZE = 257
EXACT_CHAIN_RULES = ("rejection", "block", "coupled")


class Watched(TableModel):
    """Checks the cache's invariant whenever a cycle begins, and that nothing stays open."""

    def __init__(self, size: int, **options: object) -> None:
        super().__init__(size, **options)  # type: ignore[arg-type]
        self.texts: list[list[int]] = []

    def forward(
        self,
        rows: Rows,
        features: FeatureRequest = FeatureRequest(),  # noqa: B008
    ) -> ForwardOutput:
        assert all(not pending for pending in self.pending.values())
        return super().forward(rows, features)


def table(**options: object) -> Watched:
    return Watched(SIZE, seed=1, spread=3.0, **options)


def drafter_like(target: TableModel, tokenizer: Tokenizer, noise: float = 1.0) -> Drafter:
    """A draft model that resembles its target."""
    model = TableModel(SIZE, seed=1, spread=3.0)
    rng = np.random.default_rng(7)
    model.table = target.table + rng.normal(0, noise, target.table.shape).astype(np.float32)
    return DraftModel(model, align_vocabulary(tokenizer, SIZE, tokenizer, SIZE))


def drafters(target: TableModel, tokenizer: Tokenizer) -> dict[str, Drafter | str]:
    return {
        "none": "none",
        "prompt-lookup": "prompt-lookup",
        "draft": drafter_like(target, tokenizer),
    }


def run(
    target: TableModel,
    tokenizer: Tokenizer,
    drafter: Drafter | str,
    k: int,
    verify: str,
    params: SamplingParams,
    prompt: Sequence[int] = (65, 66, 67, 65, 66),
) -> Generation:
    engine = Engine(target, tokenizer=tokenizer, drafter=drafter, k=k, verify=verify)
    result = engine.generate(list(prompt), params)
    assert not target.cached, "a finished request leaves nothing open"
    return result


@pytest.mark.parametrize("verify", [*EXACT_CHAIN_RULES, "argmax_match", "recursive"])
@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_greedy_output_is_plain_greedy_output(
    byte_tokenizer: Tokenizer, verify: str, k: int
) -> None:
    target = table()
    params = SamplingParams(max_tokens=60)
    plain = run(target, byte_tokenizer, "none", 0, "rejection", params)
    for drafter in drafters(target, byte_tokenizer).values():
        result = run(target, byte_tokenizer, drafter, k, verify, params)
        assert result.token_ids == plain.token_ids
        assert result.text == plain.text


@pytest.mark.parametrize("k", [0, 1, 3, 8])
def test_coupled_output_is_the_plain_samplers_at_any_temperature(
    byte_tokenizer: Tokenizer, k: int
) -> None:
    target = table()
    params = SamplingParams(
        max_tokens=60, temperature=0.8, seed=7, top_p=0.9, repetition_penalty=1.1
    )
    plain = run(target, byte_tokenizer, "none", 0, "coupled", params)
    accepted = 0
    for drafter in drafters(target, byte_tokenizer).values():
        result = run(target, byte_tokenizer, drafter, k, "coupled", params)
        assert result.token_ids == plain.token_ids
        accepted += result.stats.accepted
    assert k == 0 or accepted > 0


def test_without_a_draft_every_rule_emits_the_plain_samplers_tokens(
    byte_tokenizer: Tokenizer,
) -> None:
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=3)
    texts = {
        run(table(), byte_tokenizer, "none", 0, verify, params).token_ids
        for verify in (*EXACT_CHAIN_RULES, "recursive", "greedy_siblings")
    }
    assert len(texts) == 1


def test_the_same_seed_gives_the_same_tokens_and_another_seed_others(
    byte_tokenizer: Tokenizer,
) -> None:
    target = table()
    drafter = drafter_like(target, byte_tokenizer)
    for verify in EXACT_CHAIN_RULES:
        first, again, other = (
            run(
                target,
                byte_tokenizer,
                drafter,
                4,
                verify,
                SamplingParams(max_tokens=40, temperature=1.0, seed=seed),
            )
            for seed in (5, 5, 6)
        )
        assert first.token_ids == again.token_ids
        assert first.token_ids != other.token_ids


def test_a_fresh_seed_is_reported_and_reproduces_the_text(byte_tokenizer: Tokenizer) -> None:
    params = SamplingParams(max_tokens=30, temperature=1.0)
    first = run(table(), byte_tokenizer, "prompt-lookup", 3, "coupled", params)
    second = run(table(), byte_tokenizer, "prompt-lookup", 3, "coupled", params)
    assert first.seed != second.seed
    again = SamplingParams(max_tokens=30, temperature=1.0, seed=first.seed)
    assert run(table(), byte_tokenizer, "none", 0, "coupled", again).token_ids == first.token_ids


@pytest.mark.parametrize("verify", EXACT_CHAIN_RULES)
def test_a_batch_gives_each_prompt_the_tokens_that_it_gets_alone(
    byte_tokenizer: Tokenizer, verify: str
) -> None:
    target = table()
    prompts = [[65, 66], [70, 71, 72, 70, 71], [80], [90, 91, 90, 91, 90], [66, 66, 66]]
    params = [SamplingParams(max_tokens=n, temperature=0.7, seed=n) for n in (1, 30, 17, 30, 24)]
    engine = Engine(
        target,
        tokenizer=byte_tokenizer,
        drafter=drafter_like(target, byte_tokenizer),
        k=3,
        verify=verify,
        config=EngineConfig(max_batch=3),
    )
    together = engine.generate(prompts, params)
    alone = [engine.generate(one, some) for one, some in zip(prompts, params, strict=True)]
    assert [r.token_ids for r in together] == [r.token_ids for r in alone]
    assert [r.text for r in together] == [r.text for r in alone]
    assert max(r.stats.largest_batch for r in together) == 3
    assert not target.cached


def loop_to(target: TableModel, order: Sequence[int]) -> None:
    """Make the target's greedy text run through ``order``, whatever came before."""
    for here, there in pairwise(order):
        target.table[:, here, :] = -5.0
        target.table[:, here, there] = 5.0


def certain(byte_tokenizer: Tokenizer, text: bytes) -> TableModel:
    """A target whose greedy continuation of ``text[0]`` is the rest, then the end token."""
    target = table()
    loop_to(target, [*text, EOS])
    return target


@pytest.mark.parametrize("k", [0, 1, 2, 5, 16])
def test_an_end_token_in_the_middle_of_an_accepted_path_ends_everything(
    byte_tokenizer: Tokenizer, k: int
) -> None:
    target = certain(byte_tokenizer, b"abcdef")
    target.table[:, EOS, :] = -5.0
    target.table[:, EOS, ord("x")] = 5.0
    drafter = drafter_like(target, byte_tokenizer, noise=0.0)
    result = run(
        target, byte_tokenizer, drafter, k, "rejection", SamplingParams(max_tokens=50), b"a"
    )
    assert result.token_ids == (*b"bcdef", EOS)
    assert result.text == "bcdef"
    assert result.finish_reason == "stop"
    assert result.stats.emitted == 6
    assert len(result.origins) == 6
    assert result.stats.accepted == result.origins.count("draft")


@pytest.mark.parametrize("k", [0, 1, 4, 16])
def test_the_earliest_of_stop_string_end_token_and_length_wins(
    byte_tokenizer: Tokenizer, k: int
) -> None:
    for stop, max_tokens, text, reason, count in [
        (("de",), 50, "bc", "stop", 4),
        (("de",), 4, "bc", "stop", 4),  # both at the same token: the stop string
        (("de",), 3, "bcd", "length", 3),
        ((), 5, "bcdef", "length", 5),
        ((), 6, "bcdef", "stop", 6),
        (("fz",), 50, "bcdef", "stop", 6),
    ]:
        target = certain(byte_tokenizer, b"abcdef")
        result = run(
            target,
            byte_tokenizer,
            drafter_like(target, byte_tokenizer, noise=0.0),
            k,
            "coupled",
            SamplingParams(max_tokens=max_tokens, stop=stop),
            b"a",
        )
        assert (result.text, result.finish_reason) == (text, reason)
        assert len(result.token_ids) == count
        assert result.stats.emitted == count


def test_an_ignored_end_token_is_a_token_like_any_other(byte_tokenizer: Tokenizer) -> None:
    target = certain(byte_tokenizer, b"ab")
    params = SamplingParams(max_tokens=5, ignore_eos=True)
    result = run(target, byte_tokenizer, "none", 0, "coupled", params, b"a")
    assert result.token_ids[:2] == (ord("b"), EOS)
    assert len(result.token_ids) == 5


@pytest.mark.parametrize("k", [0, 3, 8])
def test_a_full_context_ends_the_request(byte_tokenizer: Tokenizer, k: int) -> None:
    target = Watched(SIZE, seed=1, max_context=12)
    drafter = drafter_like(target, byte_tokenizer)
    params = SamplingParams(max_tokens=100, ignore_eos=True)
    result = run(target, byte_tokenizer, drafter, k, "coupled", params, [1, 2, 3, 4])
    assert result.finish_reason == "context"
    assert len(result.token_ids) == 8


def test_a_prompt_that_fills_the_context_is_refused(byte_tokenizer: Tokenizer) -> None:
    engine = Engine(Watched(SIZE, seed=1, max_context=4), tokenizer=byte_tokenizer)
    with pytest.raises(PromptTooLong, match=r"has 4 tokens.*at most 3"):
        engine.generate([1, 2, 3, 4])
    assert len(engine.generate([1, 2, 3]).token_ids) == 1


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("", "prompt is empty"),
        ([], "prompt is empty"),
        ([300], "outside the vocabulary"),
        ([-1], "outside the vocabulary"),
        ([1.5], "whole numbers"),
        ([True], "whole numbers"),
        (5, "a prompt is"),
    ],
)
def test_a_bad_prompt_is_refused(byte_tokenizer: Tokenizer, prompt: object, words: str) -> None:
    engine = Engine(table(), tokenizer=byte_tokenizer)
    with pytest.raises(InvalidInput, match=words):
        engine.generate(prompt)  # type: ignore[call-overload]


def test_logprobs_are_the_targets_at_every_position(byte_tokenizer: Tokenizer) -> None:
    target = table()
    params = SamplingParams(max_tokens=30, temperature=0.9, seed=2, logprobs=3, top_k=20)
    plain = run(target, byte_tokenizer, "none", 0, "coupled", params)
    result = run(target, byte_tokenizer, drafter_like(target, byte_tokenizer), 4, "coupled", params)
    assert result.stats.accepted > 0
    assert result.logprobs == plain.logprobs
    assert result.logprobs is not None
    tokens = [67, 65, 66, *result.token_ids]
    for entry, before, last, token in zip(
        result.logprobs, tokens[1:], tokens[2:], tokens[3:], strict=False
    ):
        logits = target.logits(before, last).astype(np.float64)
        expected = logits - np.log(np.exp(logits).sum())
        assert entry.token == token
        assert entry.logprob == pytest.approx(expected[token], abs=1e-5)
        assert [t for t, _ in entry.top] == np.argsort(-expected, kind="stable")[:3].tolist()


def test_a_broken_row_fails_its_own_request_and_no_other(byte_tokenizer: Tokenizer) -> None:
    target = certain(byte_tokenizer, b"abcdef")
    target.table[:, ord("d"), :] = np.nan
    loop_to(target, b"ghijklmnop")
    engine = Engine(target, tokenizer=byte_tokenizer, drafter="none")
    params = SamplingParams(max_tokens=6)
    broken, whole = engine.generate([[*b"a"], [*b"g"]], params)
    assert broken.finish_reason == "error"
    assert isinstance(broken.error, NumericalError)
    assert broken.text == "bcd"
    assert (whole.text, whole.finish_reason) == ("hijklm", "length")
    with pytest.raises(NumericalError):
        engine.generate([*b"a"], params)
    assert not target.cached


def test_pieces_concatenate_to_the_result(byte_tokenizer: Tokenizer) -> None:
    target = table()
    engine = Engine(
        target, tokenizer=byte_tokenizer, drafter=drafter_like(target, byte_tokenizer), k=4
    )
    stream = engine.stream([65, 66], SamplingParams(max_tokens=50, temperature=1.0, seed=4))
    with pytest.raises(InvalidInput, match="before its last piece"):
        _ = stream.result
    pieces = list(stream)
    result = stream.result
    assert "".join(piece.text for piece in pieces) == result.text
    assert tuple(t for piece in pieces for t in piece.token_ids) == result.token_ids
    assert tuple(o for piece in pieces for o in piece.origins) == result.origins


def test_a_stream_that_is_closed_early_frees_its_request(byte_tokenizer: Tokenizer) -> None:
    target = table()
    engine = Engine(target, tokenizer=byte_tokenizer)
    stream = engine.stream([65, 66], SamplingParams(max_tokens=50, ignore_eos=True))
    next(stream)
    assert target.cached
    stream.close()
    assert not target.cached
    assert list(stream) == []


@pytest.mark.parametrize("prompt", [b"abc", [b"abc"], "\ud800", [65, 1.0], {"role": "user"}, None])
def test_what_is_no_prompt_is_refused(byte_tokenizer: Tokenizer, prompt: Any) -> None:
    with pytest.raises(InvalidInput, match=r"prompt|token ids"):
        Engine(table(), tokenizer=byte_tokenizer).generate(prompt)


def test_token_ids_of_numpy_are_token_ids(byte_tokenizer: Tokenizer) -> None:
    engine, params = Engine(table(), tokenizer=byte_tokenizer), SamplingParams(max_tokens=4, seed=1)
    ids = list(np.asarray([65, 66]))
    assert engine.generate(ids, params).token_ids == engine.generate([65, 66], params).token_ids


@pytest.mark.parametrize("params", [{"temperature": 0.0}, 3, "x"])
def test_what_is_no_sampling_params_is_refused(byte_tokenizer: Tokenizer, params: Any) -> None:
    engine = Engine(table(), tokenizer=byte_tokenizer)
    for refused in (
        lambda: engine.generate([65], params),
        lambda: engine.stream([65], params),
        lambda: engine.generate([[65], [66]], params),
        lambda: engine.generate([[65], [66]], [params, params]),
    ):
        with pytest.raises(InvalidInput, match="SamplingParams"):
            refused()


@pytest.mark.parametrize("drafter", [None, 5, Stateless, object()])
def test_what_is_no_drafter_is_refused(byte_tokenizer: Tokenizer, drafter: Any) -> None:
    with pytest.raises(InvalidInput, match="a drafter is"):
        Engine(table(), tokenizer=byte_tokenizer, drafter=drafter)


def test_statistics_add_up(byte_tokenizer: Tokenizer) -> None:
    target = table()
    params = SamplingParams(max_tokens=200, temperature=1.0, seed=8, ignore_eos=True)
    for verify in EXACT_CHAIN_RULES:
        drafter = drafter_like(target, byte_tokenizer, noise=0.5)
        stats = run(target, byte_tokenizer, drafter, 3, verify, params).stats
        assert stats.emitted == 200
        assert stats.accepted + stats.cycles == stats.emitted
        assert stats.acceptance_length == pytest.approx(200 / stats.cycles)
        assert sum(stats.accepted_at) == stats.accepted
        assert sum(stats.drafted_at) == stats.drafted
        assert stats.alpha is not None and 0.0 < stats.alpha < 1.0
        assert all(
            a is None or 0.0 <= a <= 1.0
            for a in (*stats.conditional_acceptance, *stats.marginal_acceptance)
        )
        if verify == "rejection":  # reached by accepting the one before, but for the last cycles
            pairs = zip(stats.accepted_at, stats.reached_at[1:], strict=False)
            assert all(0 <= accepted - reached <= 2 for accepted, reached in pairs)


def test_alpha_is_the_overlap_of_the_two_laws(byte_tokenizer: Tokenizer) -> None:
    target = table()
    drafter = drafter_like(target, byte_tokenizer)
    assert isinstance(drafter, DraftModel)
    model = drafter._model
    assert isinstance(model, TableModel)
    # max_tokens=2 leaves room for one drafted token: its alpha is that of the root.
    params = SamplingParams(max_tokens=2, temperature=1.0, seed=1)
    stats = run(target, byte_tokenizer, drafter, 1, "rejection", params, [65, 66]).stats
    p, q = (np.exp(m.logits(65, 66).astype(np.float64)) for m in (target, model))
    expected = np.minimum(p / p.sum(), q / q.sum()).sum()
    assert stats.alphas[0] == pytest.approx(expected, abs=1e-6)


def test_the_depth_is_clamped_where_the_request_ends_anyway(byte_tokenizer: Tokenizer) -> None:
    target = table()
    drafter = drafter_like(target, byte_tokenizer, noise=0.0)
    params = SamplingParams(max_tokens=4, ignore_eos=True)
    stats = run(target, byte_tokenizer, drafter, 16, "rejection", params).stats
    assert (stats.cycles, stats.drafted, stats.accepted) == (1, 3, 3)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"config": {"threads": 2}}, "config is an EngineConfig"),
        ({"config": False}, "config is an EngineConfig"),
        ({"costs": 5}, "costs is a CostTable"),
        ({"costs": {"rows": [1]}}, "costs is a CostTable"),
    ],
)
def test_what_is_no_config_or_cost_table_is_refused(
    byte_tokenizer: Tokenizer, arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        Engine(table(), tokenizer=byte_tokenizer, **arguments)
