"""The one way to draw tokens: an exponential race, each token running at the rate of its weight.

If E_t are independent standard exponentials, the t with the smallest E_t / w_t is a sample from
w / sum(w), and the first m in order are m samples without replacement. With E = -log U this is the
Gumbel-max trick (argmax of log w + G). Weights need no normalisation: a common factor moves no
runner past another.

The noise belongs to token ids, so it need not be drawn for runners that can't win: E is at least
``MIN_EXPONENTIAL``, which bounds every rate from below. The result always equals that of the whole
field. Knows nothing of models and rules. V vocabulary.
"""

from __future__ import annotations

from typing import Final

from array_api_compat import array_namespace

from slipstream.kernels import sampling as compiled
from slipstream.sampling.noise import MIN_EXPONENTIAL, Stream
from slipstream.sampling.selection import kth_largest
from slipstream.types import Array

_FIRST_LOOK: Final = 1.0 / 64
"""The first look takes the tokens heavier than this fraction of the heaviest."""

_SMALL_FIELD: Final = 24
"""Vocabularies up to this size are looked at whole."""

_SMALL: Final = 1e-30
"""Weight bounds below this are rounded down to 0, away from float32's denormal numbers."""


def race(weights_V: Array, stream: Stream, count: int = 1) -> list[int]:
    """Draw ``count`` different tokens with probabilities in proportion to their weights.

    Args:
        weights_V: (V,) float32 or float64, not negative, of any sum.
        stream: where the exponentials come from.
        count: how many.

    Returns:
        Token ids in the order of arrival, ties to the lowest id. Weight 0 never arrives, so there
        are fewer than ``count`` if fewer have a positive weight.
    """
    if compiled.fits(weights_V, double=True):
        return compiled.race(weights_V, stream.key, stream.words, count)
    xp = array_namespace(weights_V)
    if weights_V.shape[0] <= _SMALL_FIELD:
        (ids,) = xp.nonzero(weights_V > 0.0)
        return _order(_arrivals(weights_V, ids, stream), ids, count)

    look, ids = _first_look(weights_V, count)
    arrivals = _arrivals(weights_V, ids, stream)
    if ids.shape[0] < count:
        return _order(arrivals, ids, count)

    # Whoever has not been looked at must beat the slowest of the first ``count`` arrivals; with
    # the smallest exponential there is, that takes a weight above ``needed``.
    slowest = -float(kth_largest(-arrivals, count))
    needed = _round_down(MIN_EXPONENTIAL / slowest * (1.0 - 2.0**-20))
    if needed < look:
        (others,) = xp.nonzero((weights_V > needed) & (weights_V <= look))
        if others.shape[0]:
            ids = xp.concat([ids, others])
            arrivals = xp.concat([arrivals, _arrivals(weights_V, others, stream)])
    ahead = arrivals <= slowest
    return _order(arrivals[ahead], ids[ahead], count)


def _first_look(weights_V: Array, count: int) -> tuple[float, Array]:
    """A weight, and the ids of the at least ``count`` tokens above it; all of them if it is 0."""
    xp = array_namespace(weights_V)
    look = float(xp.max(weights_V))
    while True:
        look = _round_down(look * _FIRST_LOOK)
        (ids,) = xp.nonzero(weights_V > look)
        if look == 0.0 or ids.shape[0] >= count:
            return look, ids


def _arrivals(weights_V: Array, ids: Array, stream: Stream) -> Array:
    # An array divided by an array of float64 is one of float64, whatever the weights are.
    return stream.exponentials(ids) / weights_V[ids]


def _order(arrivals: Array, ids: Array, count: int) -> list[int]:
    ranked = sorted(zip(arrivals.tolist(), ids.tolist(), strict=True))
    return [token for _, token in ranked[:count]]


def _round_down(weight: float) -> float:
    return weight if weight > _SMALL else 0.0
