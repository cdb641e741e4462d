"""Which tokens of a distribution come first, and how likely children are to be accepted.

Guesses about acceptance steer the shape of trees: they move speed and never the output. Knows no
noise and no tree. V vocabulary.
"""

from __future__ import annotations

import math
from typing import Final

from array_api_compat import array_namespace, is_numpy_array

from slipstream.sampling.selection import kth_largest
from slipstream.types import Array, DrawMethod

_BLOCK: Final = 64
_MANY: Final = 1024
"""From this many values on, blocks are compared before their members."""


def slot_confidences(probs: Array, count: int, draw: DrawMethod) -> list[float]:
    """How likely each of a node's next ``count`` children is to be accepted, before the draw.

    A guess from q alone, which moves speed and never the output. For chosen children it is their
    q. A sampled child is accepted with the overlap of p and q, which grows with how peaked q is;
    its 2-norm stands for that, and the later ones share what the earlier left.
    """
    xp = array_namespace(probs)
    peak = min(1.0, math.sqrt(float(xp.sum(probs * probs))))
    if draw == "sampled":
        return [peak * (1.0 - peak) ** rank for rank in range(count)]
    chosen = [float(probs[token]) for token in top(probs, count - 1)]
    return [*chosen, max(0.0, 1.0 - sum(chosen)) * peak]


def top(values: Array, count: int, above: float = 0.0) -> list[int]:
    """Indices of the largest values above a bound, largest first, ties to the lowest index."""
    if count <= 0:
        return []
    if is_numpy_array(values) and values.shape[0] < _MANY:
        best = (-values).argsort(kind="stable")[:count]
        heights = values[best].tolist()
        return [i for i, height in zip(best.tolist(), heights, strict=True) if height > above]
    xp = array_namespace(values)
    if count == 1:
        indices = [int(xp.argmax(values))]
    else:
        indices = xp.nonzero(values >= _bound(values, count))[0].tolist()
    ranked = sorted((-float(values[i]), i) for i in indices)
    return [i for value, i in ranked[:count] if -value > above]


def _bound(values: Array, count: int) -> Array:
    """A number that at least ``count`` values reach, if there are so many, and few others do."""
    size = values.shape[0]
    if is_numpy_array(values) and size >= _MANY and count <= size // _BLOCK:
        # As many blocks as are asked for have a member that reaches this.
        whole = values[: size - size % _BLOCK].reshape(-1, _BLOCK)
        return kth_largest(whole.max(axis=1), count)
    return kth_largest(values, min(count, size))
