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

from array_api_compat import array_namespace, device

from slipstream.sampling.noise import MIN_EXPONENTIAL, Stream
from slipstream.types import Array

_FIRST_LOOK: Final = 1.0 / 64
"""The first look takes the tokens heavier than this fraction of the heaviest."""

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
    xp = array_namespace(weights_V)
    look = float(xp.max(weights_V))
    if not look > 0.0:
        return []
    seen = weights_V > look
    ids = xp.zeros(0, dtype=xp.int64, device=device(weights_V))
    while look > 0.0 and ids.shape[0] < count:
        look = _round_down(look * _FIRST_LOOK)
        seen = weights_V > look
        (ids,) = xp.nonzero(seen)
    rates = _arrivals(weights_V, ids, stream)
    if ids.shape[0] <= count and look == 0.0:
        return _order(rates, ids, count)

    # Whoever has not been looked at must beat the slowest of the first ``count`` arrivals; with
    # the smallest exponential there is, that takes a weight above ``needed``.
    slowest = float(xp.sort(rates)[count - 1])
    needed = _round_down(MIN_EXPONENTIAL / slowest * (1.0 - 2.0**-20))
    if needed < look:
        (others,) = xp.nonzero((weights_V > needed) & ~seen)
        ids = xp.concat([ids, others])
        rates = xp.concat([rates, _arrivals(weights_V, others, stream)])
    ahead = rates <= slowest
    return _order(rates[ahead], ids[ahead], count)


def _arrivals(weights_V: Array, ids: Array, stream: Stream) -> Array:
    xp = array_namespace(weights_V)
    return stream.exponentials(ids) / xp.astype(xp.take(weights_V, ids, axis=0), xp.float64)


def _order(rates: Array, ids: Array, count: int) -> list[int]:
    ranked = sorted(zip(rates.tolist(), ids.tolist(), strict=True))
    return [token for _, token in ranked[:count]]


def _round_down(weight: float) -> float:
    return weight if weight > _SMALL else 0.0
