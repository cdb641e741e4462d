"""The hot part of sampling in the compiled core: same results as ``slipstream.sampling``, sooner.

``fits`` says whether an array can be handed over: numpy, one contiguous dimension, and the core is
there; everything else stays with the array-API functions. Exponentials differ from numpy's in the
last bit or two; races and top-p sets are equal. V vocabulary.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.kernels import available, isa, native

_WORTH_IT = 1024
"""Smaller vocabularies aren't worth the call."""

F32 = npt.NDArray[np.float32]


def fits(values_V: Any, *, double: bool = False) -> bool:
    """Whether the core takes this array (float32; or float64 as well)."""
    return (
        isinstance(values_V, np.ndarray)
        and values_V.ndim == 1
        and values_V.shape[0] >= _WORTH_IT
        and (values_V.dtype == np.float32 or (double and values_V.dtype == np.float64))
        and values_V.flags.c_contiguous
        and _present()
    )


def race(
    weights_V: npt.NDArray[np.floating[Any]],
    key: tuple[int, int],
    words: tuple[int, int, int],
    count: int,
) -> list[int]:
    """The first ``count`` arrivals; see :func:`slipstream.sampling.race.race`."""
    return list(native().race(weights_V, key, words, count))


def top_p(weights_V: F32, mass: float) -> F32:
    """Weights of the smallest heaviest set with a share ``mass``; 0 elsewhere."""
    out = np.empty_like(weights_V)
    native().top_p(weights_V, mass, out)
    return out


def largest(logits_V: F32) -> float:
    """The largest logit; NaN if there is one."""
    return float(native().largest(_isa(), logits_V))


def exponentials(logits_V: F32, top: float, temperature: float) -> F32:
    """exp((logit - top) / temperature); 0 for what is masked."""
    out = np.empty_like(logits_V)
    native().exponentials(_isa(), logits_V, top, temperature, out)
    return out


@functools.cache
def _present() -> bool:
    return available()


@functools.cache
def _isa() -> str:
    return isa()
