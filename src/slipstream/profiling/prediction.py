"""The speedup at every k, from one recorded run and measured costs, with its interval.

A run with deep drafts says of each emitted token whether the drafter had it right, had it wrong, or
had nothing to say. For another k that record is walked through again: a cycle takes up to k right
tokens and the one after, and pays for its rows and its drafting. Unlike the closed forms, which
:mod:`slipstream.theory.speedup` has, this keeps what real text does: right guesses come in runs,
and drafts are sometimes missing or short. It assumes that the drafter's being right about a token
doesn't depend on where its cycle began. Shape letters: P prompts, K depths.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from slipstream.profiling.acceptance import Estimate, ratio
from slipstream.profiling.cost import CycleCost, DraftCost
from slipstream.profiling.recording import CycleRecord, PromptRecord

FloatArray = npt.NDArray[np.float64]


class Guess(IntEnum):
    """What the drafter had to say of an emitted token."""

    RIGHT = 0
    WRONG = 1
    NONE = 2


class Walk(NamedTuple):
    """The cycles that another k would have had: drafted depth and emitted tokens of each."""

    depths: list[int]
    emitted: list[int]


@dataclass(frozen=True, kw_only=True)
class Costs:
    """Everything that a cycle is made of.

    Args:
        cycles: C(rows) at the workload's context, one emitted token included.
        emission: seconds per further emitted token.
        drafting: what the drafter adds.
        nodes_per_level: rows per drafted level; more than 1 for trees.
    """

    cycles: CycleCost
    emission: float
    drafting: DraftCost
    nodes_per_level: float = 1.0

    def seconds(self, walk: Walk, k: int, batch: int = 1) -> float:
        """Seconds of a walk's cycles, asked for depth k, in a batch of such sequences."""
        total = 0.0
        for depth, emitted in zip(walk.depths, walk.emitted, strict=True):
            rows = 1 + round(depth * self.nodes_per_level)
            total += self.cycles.at(rows * batch) + (emitted - 1) * batch * self.emission
        return total + len(walk.depths) * self.drafting.at(k)


@dataclass(frozen=True, kw_only=True)
class SpeedupCurve:
    """Predictions by k, k = 0 first.

    Args:
        tokens: emitted tokens per cycle.
        speedups: over plain decoding.
    """

    tokens: tuple[float, ...]
    speedups: tuple[Estimate, ...]

    @property
    def best(self) -> int:
        """The k of the largest speedup, 0 if nothing pays."""
        values = [estimate.value for estimate in self.speedups]
        return int(np.argmax(values))

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "best_k": self.best,
            "k": list(range(len(self.tokens))),
            "tokens_per_cycle": list(self.tokens),
            "speedup": [
                {n: None if np.isnan(v) else v for n, v in zip(e._fields, e, strict=True)}
                for e in self.speedups
            ],
        }


def guesses(cycles: Sequence[CycleRecord]) -> tuple[list[Guess], dict[int, int]]:
    """What was guessed of each token, and how deep the draft was that began at a token.

    A token behind a fully accepted draft was not guessed; it is taken to be as the one after it.
    """
    tokens: list[Guess] = []
    limits: dict[int, int] = {}
    for cycle in cycles:
        if cycle.depth:
            limits[len(tokens)] = cycle.depth
        tokens += [Guess.RIGHT] * cycle.accepted
        own = cycle.emitted - cycle.accepted
        if own and cycle.accepted < cycle.depth:
            tokens.append(Guess.WRONG)
        elif own:
            tokens.append(Guess.NONE)
    settled = list(tokens)
    for cycle_end in range(len(tokens) - 2, -1, -1):
        full = tokens[cycle_end] is Guess.NONE and cycle_end > 0
        if full and tokens[cycle_end - 1] is Guess.RIGHT:
            settled[cycle_end] = settled[cycle_end + 1]
    return settled, limits


def walk(tokens: Sequence[Guess], limits: dict[int, int], k: int) -> Walk:
    """The cycles of depth k through a text of which every token's guess is known."""
    depths: list[int] = []
    emitted: list[int] = []
    place = 0
    while place < len(tokens):
        left = len(tokens) - place - 1  # no draft goes past what can be emitted
        depth = 0
        if tokens[place] is not Guess.NONE:
            depth = min(k, limits.get(place, k), left)
        right = 0
        while right < depth and tokens[place + right] is Guess.RIGHT:
            right += 1
        depths.append(depth)
        emitted.append(right + 1)
        place += right + 1
    return Walk(depths, emitted)


def predict(
    records: Sequence[PromptRecord], costs: Costs, deepest: int, batch: int = 1
) -> SpeedupCurve:
    """Speedups for k = 0 .. ``deepest``, which the records must have been drafted to."""
    known = [guesses(record.cycles) for record in records]
    tokens_P = np.array([float(len(tokens)) for tokens, _ in known])
    plain_P = tokens_P * costs.cycles.at(batch)
    lengths: list[float] = []
    speedups: list[Estimate] = []
    for k in range(deepest + 1):
        walks = [walk(tokens, limits, k) for tokens, limits in known]
        seconds_P = np.array([costs.seconds(w, k, batch) for w in walks])
        lengths.append(float(tokens_P.sum()) / max(1, sum(len(w.depths) for w in walks)))
        if k == 0:
            speedups.append(Estimate(1.0, 1.0, 1.0))
        else:
            speedups.append(ratio(plain_P, seconds_P))
    return SpeedupCurve(tokens=tuple(lengths), speedups=tuple(speedups))


def break_even_batch(
    records: Sequence[PromptRecord], costs: Costs, deepest: int, largest: int = 64
) -> int | None:
    """The smallest batch at which no k > 0 is predicted to gain 2 %; None if there is none."""
    for batch in (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64):
        if batch > largest:
            break
        curve = predict(records, costs, deepest, batch)
        if max(estimate.value for estimate in curve.speedups[1:]) < 1.02:
            return batch
    return None
