"""The hot part of sampling in the compiled core: same results as ``slipstream.sampling``, sooner.

``fits`` says whether an array can be handed over: numpy, one contiguous dimension, and the core is
there; everything else stays with the array-API functions. What is equal and what is not:

* tokens of a race, the best token, [p - q]+: equal, bit for bit;
* which tokens top-k keeps: equal. Which top-p and min-p keep: equal, unless a share or a weight is
  within a few units in the last place of the edge;
* probabilities: relative error below 1e-6, where numpy's own is about 3e-7; what is less likely
  than 1e-38 times the best is 0;
* sums (``overlap``): added up in float64, where numpy adds in float32.

A row's numbers don't depend on other rows. V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.kernels.chosen import core as _core
from slipstream.kernels.chosen import isa_in_use as _isa
from slipstream.kernels.chosen import present as _present

_WORTH_IT = 1024
"""Smaller vocabularies aren't worth the call."""

_F32, _F64 = np.dtype(np.float32), np.dtype(np.float64)

F32 = npt.NDArray[np.float32]


def fits(values_V: Any, *, double: bool = False) -> bool:
    """Whether the core takes this array (float32; or float64 as well)."""
    return (
        isinstance(values_V, np.ndarray)
        and values_V.ndim == 1
        and values_V.shape[0] >= _WORTH_IT
        and (values_V.dtype == _F32 or (double and values_V.dtype == _F64))
        and values_V.flags.c_contiguous
        and _present()
    )


def distribution(
    logits_V: F32, temperature: float, top_k: int, top_p: float, min_p: float
) -> tuple[F32, float]:
    """Probabilities after temperature, top-k, top-p and min-p, and the highest logit.

    Where the highest logit is not finite (NaN if any is), the probabilities are unset. See
    :func:`slipstream.sampling.processors.process_logits`.
    """
    probs_V = np.empty_like(logits_V)
    best = _core().distribution(_isa(), logits_V, temperature, top_k, top_p, min_p, probs_V)
    return probs_V, best


def draw(
    logits_V: F32,
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    key: tuple[int, int],
    words: tuple[int, int, int],
) -> tuple[F32, float, int]:
    """:func:`distribution`, and the winner of the race over it; 0 if the logit is not finite."""
    probs_V = np.empty_like(logits_V)
    best, token = _core().draw(
        _isa(), logits_V, temperature, top_k, top_p, min_p, probs_V, key, words
    )
    return probs_V, best, token


def largest(logits_V: F32) -> float:
    """The largest logit; NaN if there is one."""
    return float(_core().largest(_isa(), logits_V))


def best(logits_V: F32) -> tuple[int, float]:
    """The largest logit's id, the lowest of several, and the logit; where it is not finite (NaN if
    any is), the id is 0.
    """
    token, value = _core().best(_isa(), logits_V)
    return token, value


def race(
    weights_V: npt.NDArray[np.floating[Any]],
    key: tuple[int, int],
    words: tuple[int, int, int],
    count: int,
) -> list[int]:
    """The first ``count`` arrivals; see :func:`slipstream.sampling.race.race`."""
    return list(_core().race(_isa(), weights_V, key, words, count))


def overlap(p_V: F32, q_V: F32) -> float:
    """Sum of min(p, q); see :func:`slipstream.verification.proposal.alpha`."""
    return float(_core().overlap(_isa(), p_V, q_V))


def excess(p_V: F32, q_V: F32, scale: float) -> npt.NDArray[np.float64]:
    """[scale * p - q]+; see :func:`slipstream.verification.proposal.excess`."""
    out_V = np.empty(p_V.shape, np.float64)
    _core().excess(_isa(), p_V, q_V, scale, out_V)
    return out_V
