"""Prompt lookup (Saxena 2023): what followed these words the last time will follow them again.

The draft copies what came after an earlier occurrence of the text's last n tokens, in prompt or
output; the longest n wins, then the most recent occurrence. Costs no model and no training, and
wins wherever an answer repeats its question: editing, summaries, code, lists.

Knows no model, no tokenizer and no randomness. Promises: a chain of point masses within the
budget, and O(1) amortised work per token of text, however long the text grows.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters.base import Budget, Stateless
from slipstream.errors import InvalidInput
from slipstream.types import Draft, DrawMethod, PointMass, SequenceState


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
            if n <= len(text) and (start := latest.get(tuple(text[len(text) - n :]))) is not None:
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
        return [
            self._draft(sequence, min(budget.depth, budget.nodes))
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _draft(self, sequence: SequenceState, depth: int) -> Draft:
        if depth == 0:
            return Draft()  # the index catches up when it is next asked
        index = self._indices.setdefault(sequence.uid, NgramIndex(*self._lengths))
        index.extend(sequence.tokens)
        match = index.find(sequence.tokens)
        if match is None:
            return Draft()
        n, start = match
        if n < self._lengths[1]:
            depth = min(depth, 2 * n - 1)
        # Where the copy reaches the end of the text it goes on with what it has just drafted, so
        # that a text with a short period is continued for as long as the budget allows.
        drafted: list[int] = []
        for source in range(start, start + depth):
            beyond = source - sequence.length
            drafted.append(sequence.tokens[source] if beyond < 0 else drafted[beyond])
        return Draft.chain(drafted, [PointMass()] * depth)

    def end(self, sequence: SequenceState) -> None:
        """Forget the request's index."""
        self._indices.pop(sequence.uid, None)
