"""Between a drafter's vocabulary and its target's.

A trimmed drafter computes v logits and its map says which target tokens they belong to. Receipts,
processors and noise speak the target's ids, so logits are spread out to full width first: what the
drafter can't propose has logit minus infinity and so probability 0. v drafter vocabulary, V
target's.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from array_api_compat import array_namespace, device, is_numpy_array

from slipstream.types import Array


@dataclass(frozen=True)
class TrimmedVocabulary:
    """Which target tokens a drafter can propose.

    Args:
        size: V, the width of the target's logits.
        ids: (v,) ascending target token ids; None if the drafter's logits are V wide.
    """

    size: int
    ids: Array | None = None

    def widen(self, logits_v: Array) -> Array:
        """(…, v) drafter logits to (…, V) target logits."""
        if self.ids is None:
            return logits_v
        xp = array_namespace(logits_v)
        shape = (*logits_v.shape[:-1], self.size)
        logits_V = xp.full(shape, -math.inf, dtype=logits_v.dtype, device=device(logits_v))
        logits_V[..., xp.asarray(self.ids, device=device(logits_v))] = logits_v
        return logits_V

    def proposable(self, like: Array) -> Array:
        """(v,) ids of the tokens that can be proposed, as an array of the kind of ``like``."""
        if self.ids is None:
            return self.all_ids(like)
        if is_numpy_array(like) and is_numpy_array(self.ids):
            return self.ids
        xp = array_namespace(like)
        return xp.asarray(self.ids, dtype=xp.int64, device=device(like))

    def all_ids(self, like: Array) -> Array:
        """(V,) the target's token ids, as an array of the kind of ``like``."""
        return array_namespace(like).arange(self.size, device=device(like))

    def nothing(self, like: Array) -> Array:
        """(V,) zeros of the kind of ``like``."""
        xp = array_namespace(like)
        return xp.zeros((self.size,), dtype=like.dtype, device=device(like))
