"""A drafter's q at one node, cut down to the tokens that it has a reason to propose.

A trimmed head still has thousands of tokens of which a few hundred hold nearly all of q. Dropping
those below ``LIGHT`` of the best and renormalising makes every later step cheap, and it is not an
approximation of anything that has to be right: the shortened q *is* what children are drawn from
and what their receipt states, so every rule is as exact as before. What it can cost is acceptance:
on an EAGLE drafter of the built-in model, alpha went from .2412 to .2407 at temperature 1, with 312
of 16,384 tokens left, and from .1995 to .2001 at 0.7. At 1.5 it would have lost a sixth; where the
shortlist would not hold ``MOST`` of the mass, all of q stays.

n tokens of a shortlist, v drafter vocabulary, V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from array_api_compat import array_namespace, device, is_numpy_array

from slipstream.config import SamplingParams
from slipstream.drafters.ranking import top
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import NumericalError
from slipstream.kernels import sampling
from slipstream.kernels import shortlist as compiled
from slipstream.sampling.noise import Stream
from slipstream.sampling.processors import process_logits
from slipstream.sampling.race import race
from slipstream.types import Array

LIGHT: Final = 1e-3
"""Tokens of less than this fraction of the best one's probability are left out."""

MOST: Final = 0.9
"""A shortlist holds at least this much of q."""

SHORT: Final = 1024
"""Vocabularies below this are short already."""


_CERTAIN: Final = np.ones(1, np.float32)


@dataclass(frozen=True)
class Shortlist:
    """What a node's q says before any of its children is drawn.

    Args:
        ids: (n,) ascending target token ids.
        probs: (n,) float32 that sum to 1, or all zero where nothing can be proposed.
    """

    ids: Array
    probs: Array

    def spread(self, vocabulary: TrimmedVocabulary) -> Array:
        """The same over the target's vocabulary, (V,)."""
        probs_V = vocabulary.nothing(self.probs)
        probs_V[self.ids] = self.probs
        return probs_V

    def tokens(self, places: Sequence[int]) -> list[int]:
        """Token ids at some places of the list."""
        return [int(self.ids[place]) for place in places]

    def without(self, places: Sequence[int]) -> Shortlist:
        """The same off some places, renormalised; all zero where nothing is left."""
        if not places:
            return self
        xp = array_namespace(self.probs)
        rest = xp.asarray(self.probs, copy=True)
        rest[xp.asarray(places, dtype=xp.int64, device=device(rest))] = 0.0
        total = float(xp.sum(rest))
        return Shortlist(self.ids, rest / total if total > 0.0 else rest)


def shortlist(probs: Array, ids: Array) -> Shortlist:
    """Leave out what is light, if that leaves most of q.

    Args:
        probs: (v,) processed.
        ids: (v,) the target's ids of these tokens, ascending.
    """
    if probs.shape[0] < SHORT:
        return Shortlist(ids, probs)
    xp = array_namespace(probs)
    (kept,) = xp.nonzero(probs >= LIGHT * xp.max(probs))
    few = probs[kept]
    mass = float(xp.sum(few))
    # Written so that an all-zero q, of which everything is kept, comes back as it is.
    if not mass >= MOST or kept.shape[0] == probs.shape[0]:
        return Shortlist(ids, probs)
    return Shortlist(ids[kept], few / mass)


def processed_shortlist(logits_v: Array, params: SamplingParams, ids: Array) -> Shortlist:
    """The shortlist of a row of logits, where no processor treats tokens differently.

    Args:
        logits_v: (v,).
        params: temperature, top-k, top-p and min-p.
        ids: (v,) the target's ids, ascending.

    Raises:
        NumericalError: NaN or infinite logits.
    """
    if logits_v.shape[0] < SHORT or not sampling.fits(logits_v):
        return shortlist(process_logits(logits_v, params, [], []), ids)
    filters = (params.temperature, params.top_k, params.top_p, params.min_p)
    probs, places, best = compiled.shortlist(logits_v, filters, LIGHT, MOST)
    if not math.isfinite(best):
        raise NumericalError("the drafter's logits are not finite")
    return Shortlist(ids if places is None else ids[places], probs)


def first_arrivals(
    q: Shortlist, vocabulary: TrimmedVocabulary, stream: Stream, count: int
) -> tuple[list[int], list[float]]:
    """The race of :func:`slipstream.sampling.race.race` over q: tokens and their arrival times."""
    probs, ids = q.probs, q.ids
    if probs.shape[0] > SHORT or not compiled.present():
        probs_V = q.spread(vocabulary)
        tokens = race(probs_V, stream, count)
        xp = array_namespace(probs_V)
        ids = xp.asarray(tokens, dtype=xp.int64, device=device(probs_V))
        probs = probs_V[ids]
        if not compiled.present():
            return tokens, (stream.exponentials(ids) / probs).tolist()
    probs, ids = _in_memory(probs), _in_memory(ids)
    first = compiled.race_among(probs, ids, stream.key, stream.words, count)
    return [int(ids[place]) for _, place in first], [time for time, _ in first]


def best_of(logits_v: Array, ids: Array, count: int) -> Shortlist:
    """The ``count`` most likely tokens, as if they were equally so: nobody asks how likely.

    Raises:
        NumericalError: NaN or infinite logits.
    """
    if count == 1 and is_numpy_array(logits_v):
        place = int(logits_v.argmax())
        if not math.isfinite(logits_v[place]):
            raise NumericalError("the drafter's logits are not finite")
        return Shortlist(ids[place : place + 1], _CERTAIN)
    best = top(logits_v, count, above=-math.inf)
    if not best or not math.isfinite(float(logits_v[best[0]])):
        raise NumericalError("the drafter's logits are not finite")
    xp = array_namespace(logits_v)
    places = xp.asarray(best, dtype=xp.int64, device=device(logits_v))
    share = xp.full((len(best),), 1.0 / len(best), dtype=xp.float32, device=device(logits_v))
    return Shortlist(ids[places], share)


def _in_memory(values: Array) -> Any:
    """As a contiguous numpy array, from whatever device."""
    if not is_numpy_array(values):
        values = values.detach().cpu().numpy()
    return np.ascontiguousarray(values)
