"""Targets and drafters small enough to know everything about: distributions given a context.

Probabilities are multiples of 1/64, exact in floating point.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Probs: TypeAlias = npt.NDArray[np.float64]
Law: TypeAlias = Callable[[tuple[int, ...]], Probs]
"""Context to the distribution of the next token."""


def random_law(seed: int, support: Sequence[bool], order: int = 99) -> Law:
    """A law that differs in every context of ``order`` tokens, positive on ``support`` only."""

    @cache
    def probs(context: tuple[int, ...]) -> Probs:
        rng = np.random.default_rng([seed, *(token + 1 for token in context)])
        ids = np.flatnonzero(support)
        cuts = np.sort(rng.choice(63, len(ids) - 1, replace=False)) + 1
        parts = np.diff(np.concatenate([[0], cuts, [64]]))
        probs_V = np.zeros(len(support))
        probs_V[ids] = rng.permutation(parts) / 64
        return probs_V

    return lambda context: probs(context[-order:] if order else ())


@dataclass(frozen=True)
class Pair:
    """A target and a drafter of one vocabulary."""

    name: str
    target: Law
    drafter: Law

    def __str__(self) -> str:
        return self.name


def pairs(size: int, order: int = 99) -> list[Pair]:
    """The relations between p and q that rules have got wrong."""
    everything = [True] * size
    p = random_law(1, everything, order)
    trimmed = [token != size - 1 for token in range(size)]
    low = [token < (size + 1) // 2 for token in range(size)]
    return [
        Pair("generic", p, random_law(2, everything, order)),
        Pair("trimmed draft vocabulary", p, random_law(3, trimmed, order)),
        Pair("filtered target", random_law(4, trimmed, order), random_law(5, everything, order)),
        Pair("disjoint support", random_law(6, low, order), random_law(7, [not x for x in low])),
        Pair("p = q", p, p),
    ]


def text_law(target: Law, context: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
    """The target's own distribution of the next ``length`` tokens."""
    texts = {(): 1.0}
    for _ in range(length):
        texts = {
            (*text, token): mass * probability
            for text, mass in texts.items()
            for token, probability in enumerate(target((*context, *text)))
            if mass * probability > 0.0
        }
    return texts
