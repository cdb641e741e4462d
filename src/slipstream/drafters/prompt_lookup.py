"""Prompt lookup (Saxena 2023): what followed these words the last time will follow them again.

The draft copies what came after an earlier occurrence of the text's last n tokens, in prompt or
output; the longest n wins, then the most recent occurrence. Costs no model and no training, and
wins wherever an answer repeats its question: editing, summaries, code, lists.

Knows no model, no tokenizer and no randomness. Promises: a chain of point masses within the
budget, and O(1) amortised work per token of text, however long the text grows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from slipstream.drafters.base import Budget, Stateless
from slipstream.errors import InvalidInput
from slipstream.types import NO_DRAFT, Draft, DrawMethod, PointMass, SequenceState

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext

_CERTAIN = PointMass()


class NgramIndex:
    """Where each n-gram of a growing text was last followed by something.

    Args:
        min_ngram, max_ngram: the lengths n that are indexed.
    """

    def __init__(self, min_ngram: int, max_ngram: int) -> None:
        # One dictionary per n, longest first: n-gram -> where its latest continuation starts.
        self._next: list[tuple[int, dict[tuple[int, ...], int]]] = [
            (n, {}) for n in range(max_ngram, min_ngram - 1, -1)
        ]
        self._indexed = 1

    def extend(self, text: Sequence[int]) -> None:
        """Index the n-grams before each token of ``text`` that is new since the last call.

        An n-gram enters only once something follows it, so the text's own end never finds itself.
        """
        for start in range(self._indexed, len(text)):
            for n, latest in self._next:
                if n <= start:
                    latest[tuple(text[start - n : start])] = start
        self._indexed = max(self._indexed, len(text))

    def find(self, text: Sequence[int]) -> tuple[int, int] | None:
        """Length n of the best match of the end of ``text``, and where its continuation starts."""
        for n, latest in self._next:
            # Of a text shorter than n this is the whole, which is no n-gram of this dictionary.
            start = latest.get(tuple(text[-n:]))
            if start is not None:
                return n, start
        return None


class PromptLookup(Stateless):
    """Drafts by copying from the text itself.

    A short match is a weak promise: one of n tokens drafts at most 2n - 1, and only the longest
    drafts as far as the budget goes. Replayed on greedy chat, summaries, translations and answers
    of a 135M model, this beat every fixed shortest match, for k from 3 to 12 and rows that add 5
    to 14 % to a pass: at k = 5 and 9 % an estimated 1.33 times plain decoding, against 1.27 with
    single tokens ignored and 1.21 with every match drafting k. Longer matches brought nothing.

    Args:
        min_ngram: shortest match that is used.
        max_ngram: longest match that is tried.

    Raises:
        InvalidInput: not 1 <= min_ngram <= max_ngram.
    """

    name = "prompt-lookup"

    def __init__(self, *, min_ngram: int = 1, max_ngram: int = 4) -> None:
        if not 1 <= min_ngram <= max_ngram:
            raise InvalidInput(
                f"n-gram lengths must satisfy 1 <= min <= max, not {min_ngram} and {max_ngram}"
            )
        self._lengths = (min_ngram, max_ngram)
        self._indices: dict[int, NgramIndex] = {}

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """A chain per sequence, empty where nothing matches. ``draw`` changes nothing here."""
        drafts = []
        for sequence, budget in zip(sequences, budgets, strict=True):
            depth = min(budget.depth, budget.nodes)
            # At depth 0 the index catches up when it is next asked.
            drafts.append(self._draft(sequence, depth) if depth else NO_DRAFT)
        return drafts

    def _draft(self, sequence: SequenceState, depth: int) -> Draft:
        index = self._indices.get(sequence.uid)
        if index is None:
            index = self._indices[sequence.uid] = NgramIndex(*self._lengths)
        tokens = sequence.tokens
        index.extend(tokens)
        match = index.find(tokens)
        if match is None:
            return NO_DRAFT
        n, start = match
        if n < self._lengths[1]:
            depth = min(depth, 2 * n - 1)
        # Where the copy reaches the end of the text it goes on with what it has just drafted, so
        # that a text with a short period is continued for as long as the budget allows.
        drafted = tokens[start : start + depth]
        for beyond in range(depth - len(drafted)):
            drafted.append(drafted[beyond])
        return Draft.chain(drafted, (_CERTAIN,) * depth)

    def end(self, sequence: SequenceState) -> None:
        """Forget the request's index."""
        self._indices.pop(sequence.uid, None)


def load_prompt_lookup(spec: str, context: DrafterContext) -> PromptLookup:
    """Build from the length of the shortest match that is used, or with all of them.

    Raises:
        InvalidInput: no number, or not from 1 to the longest match.
    """
    if not spec:
        return PromptLookup()
    if not spec.isascii() or not spec.isdigit():
        raise InvalidInput(f"prompt-lookup takes the length of its shortest match, got {spec!r}")
    return PromptLookup(min_ngram=int(spec))
