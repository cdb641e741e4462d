"""The target's distributions for a drafted tree, one row at a time and only where a rule looks.

Every row is processed with its own prefix: prompt, output, and the drafted tokens on the way to it.
Most rules stop at the first rejection, so most rows of a tree are never processed; and at
temperature 0 a rule may ask for picks alone, for which no distribution is written out. R rows,
V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.config import SamplingParams
from slipstream.sampling.noise import CycleNoise
from slipstream.sampling.processors import best_token, draw, process_logits
from slipstream.sampling.race import race
from slipstream.types import Array, SequenceState, TokenTree


class ProcessedRows:
    """``rows[i]`` is the processed distribution after row i, computed at first sight.

    Args:
        logits_RV: (R, V) float32, the target's: row 0 after the root, row i + 1 after node i.
        params: how to process them.
        sequence: the request, as it is when the cycle begins. It may grow afterwards.
        tree: the draft's.

    Raises:
        NumericalError, InvalidInput: on access; see :func:`process_logits`.
    """

    def __init__(
        self, logits_RV: Array, params: SamplingParams, sequence: SequenceState, tree: TokenTree
    ) -> None:
        assert logits_RV.shape[0] == len(tree.tokens) + 1
        self._logits_RV = logits_RV
        self._params = params
        self._sequence = sequence
        self._length = len(sequence.tokens)
        self._tree = tree
        self._seen: dict[int, Array] = {}
        self._best: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tree) + 1

    def __getitem__(self, row: int) -> Array:
        """(V,) float32 probabilities."""
        probs_V = self._seen.get(row)
        if probs_V is None:
            prompt, output = self._prefix(row)
            probs_V = process_logits(self._logits_RV[row], self._params, prompt, output)
            self._seen[row] = probs_V
        return probs_V

    def pick(self, row: int, noise: CycleNoise, offset: int) -> int:
        """The plain sampler's token: the winner of the race over ``self[row]``."""
        if self._params.greedy:
            return self._greedy(row)
        stream = noise.pick(offset)
        probs_V = self._seen.get(row)
        if probs_V is not None:
            return race(probs_V, stream)[0]
        prompt, output = self._prefix(row)
        self._seen[row], token = draw(self._logits_RV[row], self._params, prompt, output, stream)
        return token

    def mass(self, row: int, tokens: Sequence[int]) -> float:
        """The sum of ``self[row]`` over different tokens."""
        if self._params.greedy:
            return float(self._greedy(row) in tokens)
        probs_V = self[row]
        return sum([float(probs_V[token]) for token in tokens])

    def _greedy(self, row: int) -> int:
        best = self._best.get(row)
        if best is None:
            prompt, output = self._prefix(row)
            best = best_token(self._logits_RV[row], self._params, prompt, output)
            self._best[row] = best
        return best

    def _prefix(self, row: int) -> tuple[list[int], list[int]]:
        """Prompt and output of a row; nothing where no processor looks at them."""
        if not self._params.penalizes:
            return [], []
        tokens, start = self._sequence.tokens, self._sequence.prompt_length
        drafted = [self._tree.tokens[node] for node in self._tree.path(row - 1)]
        return tokens[:start], tokens[start : self._length] + drafted
