"""The target's distributions for a drafted tree, one row at a time and only where a rule looks.

Every row is processed with its own prefix: prompt, output, and the drafted tokens on the way to it.
Most rules stop at the first rejection, so most rows of a tree are never processed. R rows,
V vocabulary.
"""

from __future__ import annotations

from slipstream.config import SamplingParams
from slipstream.sampling.processors import process_logits
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
        assert logits_RV.shape[0] == len(tree) + 1
        self._logits_RV = logits_RV
        self._params = params
        self._sequence = sequence
        self._length = sequence.length
        self._tree = tree
        self._seen: dict[int, Array] = {}

    def __len__(self) -> int:
        return len(self._tree) + 1

    def __getitem__(self, row: int) -> Array:
        """(V,) float32 probabilities."""
        if row not in self._seen:
            self._seen[row] = process_logits(self._logits_RV[row], self._params, *self._prefix(row))
        return self._seen[row]

    def _prefix(self, row: int) -> tuple[list[int], list[int]]:
        """Prompt and output of a row; nothing where no processor looks at them."""
        if not self._params.penalizes:
            return [], []
        tokens, start = self._sequence.tokens, self._sequence.prompt_length
        drafted = [self._tree.tokens[node] for node in self._tree.path(row - 1)]
        return tokens[:start], tokens[start : self._length] + drafted
