"""A drafter's shortlist in the compiled core: same results as the array-API functions, sooner.

See ``slipstream.drafters.shortlist`` and ``slipstream.sampling.race``. Equal up to what
:mod:`slipstream.kernels.sampling` says of distributions; races are equal bit for bit.
v drafter vocabulary, n tokens of a shortlist.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slipstream.kernels.chosen import core as _core
from slipstream.kernels.chosen import isa_in_use as _isa
from slipstream.kernels.chosen import present as present

F32 = npt.NDArray[np.float32]
Places = npt.NDArray[np.int64]


def shortlist(
    logits_v: F32, filters: tuple[float, int, float, float], light: float, most: float
) -> tuple[F32, Places | None, float]:
    """A row's distribution without what is light.

    Args:
        logits_v: contiguous.
        filters: temperature, top-k, top-p, min-p.
        light: fraction of the best probability below which tokens go.
        most: share that must be left; otherwise all stay.

    Returns:
        (n,) probabilities; (n,) ascending indices of their tokens, None for all of them; and the
        highest logit. Where that is not finite (NaN if any is), the others are unset.
    """
    probs_v = np.empty_like(logits_v)
    places_v = np.empty(logits_v.shape, np.int64)
    count, best = _core().shortlist(_isa(), logits_v, *filters, light, most, probs_v, places_v)
    if count == len(logits_v):
        return probs_v, None, best
    return probs_v[:count].copy(), places_v[:count].copy(), best


def race_among(
    weights: F32, ids: Places, key: tuple[int, int], words: tuple[int, int, int], count: int
) -> list[tuple[float, int]]:
    """Arrival and index of the first ``count`` among (n,) weights of some token ids."""
    return list(_core().race_among(weights, ids, key, words, count))
