"""Prompt lookup copies what followed the longest, latest match, and nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.config import SamplingParams
from slipstream.drafters.base import Budget
from slipstream.drafters.prompt_lookup import PromptLookup
from slipstream.errors import InvalidInput
from slipstream.types import ROOT, PointMass, SequenceState


def sequence_of(tokens: list[int], uid: int = 0) -> SequenceState:
    return SequenceState(
        uid=uid, tokens=tokens, prompt_length=len(tokens), params=SamplingParams(), seed=0
    )


def draft_of(drafter: PromptLookup, sequence: SequenceState, depth: int) -> list[int]:
    [draft] = drafter.propose([sequence], [Budget(depth=depth, nodes=depth)], "sampled")
    return list(draft.tree.tokens)


def rescan(text: list[int], depth: int, min_ngram: int, max_ngram: int) -> list[int]:
    """The definition, by scanning everything each time."""
    for n in range(max_ngram, min_ngram - 1, -1):
        for start in range(len(text) - 1, n - 1, -1):
            if text[start - n : start] == text[len(text) - n :]:
                extended = list(text)
                for i in range(depth if n == max_ngram else min(depth, 2 * n - 1)):
                    extended.append(extended[start + i])
                return extended[len(text) :]
    return []


def test_the_longest_match_wins_over_a_more_recent_shorter_one() -> None:
    text = [1, 2, 3, 40, 9, 2, 3, 50, 9, 1, 2, 3]
    assert draft_of(PromptLookup(min_ngram=1, max_ngram=3), sequence_of(text), 1) == [40]
    assert draft_of(PromptLookup(min_ngram=1, max_ngram=2), sequence_of(text), 1) == [50]


def test_among_equal_lengths_the_most_recent_wins() -> None:
    text = [1, 2, 30, 1, 2, 40, 1, 2]
    assert draft_of(PromptLookup(), sequence_of(text), 2) == [40, 1]


def test_nothing_is_drafted_without_a_match() -> None:
    drafter = PromptLookup()
    assert draft_of(drafter, sequence_of([1, 2, 3, 4]), 5) == []
    assert draft_of(drafter, sequence_of([7], uid=1), 5) == []


def test_a_period_is_continued_past_the_end_of_the_text() -> None:
    assert draft_of(PromptLookup(), sequence_of([9, 1, 2, 3, 1, 2, 3, 1, 2]), 7) == [
        3, 1, 2, 3, 1, 2, 3,
    ]  # fmt: skip
    assert draft_of(PromptLookup(), sequence_of([5] * 5), 4) == [5, 5, 5, 5]


def test_a_short_match_drafts_less() -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 9]
    for matched, drafted in [(1, 1), (2, 3), (3, 5), (4, 6)]:  # 4 is the longest: the whole budget
        sequence = sequence_of([*range(20, 30), *text, 10, 11, *text[:matched]])
        assert draft_of(PromptLookup(), sequence, 6) == [*text, 10, 11][matched : matched + drafted]


def test_the_budget_is_never_crossed() -> None:
    drafter, sequence = PromptLookup(), sequence_of([1, 2, 3, 1, 2])
    for depth, nodes, expected in [(0, 0, 0), (3, 2, 2), (2, 9, 2), (0, 4, 0)]:
        [draft] = drafter.propose([sequence], [Budget(depth=depth, nodes=nodes)], "greedy")
        assert len(draft) == expected


def test_the_draft_is_a_chain_of_point_masses_however_it_is_drawn() -> None:
    drafter, sequence = PromptLookup(), sequence_of([1, 2, 3, 1, 2])
    for draw in ("sampled", "gumbel", "greedy", "top-then-sampled"):
        [draft] = drafter.propose([sequence], [Budget(depth=3, nodes=3)], draw)
        assert draft.tree.parents == (ROOT, 0, 1)
        assert draft.receipts == (PointMass(), PointMass(), PointMass(), None)


def test_sequences_and_restarts_do_not_share_an_index() -> None:
    drafter = PromptLookup()
    first, second = sequence_of([1, 2, 3, 1, 2], uid=1), sequence_of([1, 2, 4, 1, 2], uid=2)
    drafts = drafter.propose([first, second], [Budget(depth=1, nodes=1)] * 2, "greedy")
    assert [draft.tree.tokens for draft in drafts] == [(3,), (4,)]
    drafter.end(first)
    assert draft_of(drafter, sequence_of([8, 9, 1, 2], uid=1), 1) == []


@settings(derandomize=True, max_examples=200)
@given(
    text=st.lists(st.integers(0, 3), min_size=1, max_size=40),
    steps=st.lists(st.tuples(st.integers(1, 5), st.integers(0, 6)), max_size=8),
    lengths=st.sampled_from([(1, 1), (1, 3), (2, 4), (3, 3)]),
)
def test_the_growing_index_drafts_what_a_full_rescan_finds(
    text: list[int], steps: list[tuple[int, int]], lengths: tuple[int, int]
) -> None:
    drafter = PromptLookup(min_ngram=lengths[0], max_ngram=lengths[1])
    sequence = sequence_of(text[:1])
    for grow, depth in steps:  # depth 0 leaves the index behind, as a k = 0 cycle does
        sequence.tokens.extend(text[sequence.length : sequence.length + grow])
        expected = rescan(sequence.tokens, depth, *lengths) if depth else []
        assert draft_of(drafter, sequence, depth) == expected


def test_a_cycle_on_a_long_text_costs_no_rescan() -> None:
    drafter, sequence = PromptLookup(), sequence_of([i * i % 9973 for i in range(100_000)])
    draft_of(drafter, sequence, 8)
    start = time.perf_counter()
    for token in range(1000):
        sequence.tokens.append(token)
        draft_of(drafter, sequence, 8)
    assert time.perf_counter() - start < 1.0  # a rescan of 100k tokens takes ~10 ms a cycle


def test_impossible_lengths_are_refused() -> None:
    for low, high in [(0, 3), (3, 2)]:
        with pytest.raises(InvalidInput, match="n-gram lengths"):
            PromptLookup(min_ngram=low, max_ngram=high)
