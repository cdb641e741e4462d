"""Run the shipped rules through every outcome of their random numbers, with its probability.

A rule asks chance two kinds of question only: is a uniform below a threshold, and which token does
a race over these weights pick. ``OracleNoise`` answers both by branching: a run follows a script of
answers, multiplies their probabilities, and the next run takes the next branch. What is enumerated
is the rule's own code; only the noise is replaced, and the race's name where the rules draw
(``emit``), by one that knows an oracle's streams. That the real noise and the real race have the
probabilities assumed here is tested on their own.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from slipstream.sampling.race import race as shipped_race

Result = TypeVar("Result", bound=Hashable)


@dataclass
class Branches:
    """One run: follows ``script``, then takes first branches; notes what it took."""

    script: list[int]
    trail: list[tuple[int, int]] = field(default_factory=list)
    probability: float = 1.0

    def choose(self, weights: list[float]) -> int:
        """Branch over the positive weights; returns the index of one."""
        possible = [index for index, weight in enumerate(weights) if weight > 0.0]
        step = len(self.trail)
        branch = self.script[step] if step < len(self.script) else 0
        self.trail.append((branch, len(possible)))
        self.probability *= weights[possible[branch]] / sum(weights)
        return possible[branch]

    def below(self, threshold: float) -> bool:
        """Branch over a uniform being below a threshold."""
        chance = min(max(threshold, 0.0), 1.0)
        return self.choose([chance, 1.0 - chance]) == 0


def outcomes(experiment: Callable[[Branches], Result]) -> Iterator[tuple[Result, float]]:
    """Every outcome of an experiment with its probability."""
    script: list[int] = []
    while True:
        branches = Branches(script)
        yield experiment(branches), branches.probability
        trail = branches.trail
        while trail and trail[-1][0] == trail[-1][1] - 1:
            trail.pop()
        if not trail:
            return
        script = [branch for branch, _ in trail[:-1]] + [trail[-1][0] + 1]


def law(experiment: Callable[[Branches], Result]) -> dict[Result, float]:
    """The distribution of an experiment's result."""
    total: dict[Result, float] = defaultdict(float)
    for result, probability in outcomes(experiment):
        total[result] += probability
    return dict(total)


@dataclass(frozen=True)
class _Uniform:
    branches: Branches
    scale: float = 1.0

    def __mul__(self, factor: float) -> _Uniform:
        return _Uniform(self.branches, self.scale * factor)

    def __lt__(self, threshold: float) -> bool:
        return self.branches.below(threshold / self.scale)


@dataclass(frozen=True)
class _Stream:
    branches: Branches


@dataclass(frozen=True)
class OracleNoise:
    """In place of :class:`slipstream.sampling.noise.CycleNoise`: all draws independent."""

    branches: Branches

    def pick(self, offset: int) -> _Stream:
        return _Stream(self.branches)

    def draft(self, offset: int, row: int) -> _Stream:
        return _Stream(self.branches)

    def accept(self, row: int) -> _Uniform:
        return _Uniform(self.branches)


def race(weights_V: Any, stream: Any, count: int = 1) -> list[int]:
    """The shipped race, except that an oracle's stream branches over its outcomes."""
    if not isinstance(stream, _Stream):
        return shipped_race(weights_V, stream, count)
    weights = [float(weight) for weight in weights_V]
    ids: list[int] = []
    while len(ids) < count and sum(weights) > 0.0:
        ids.append(stream.branches.choose(weights))
        weights[ids[-1]] = 0.0
    return ids


@pytest.fixture
def enumerable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the rules draw through :func:`race` above."""
    monkeypatch.setattr("slipstream.verification.emit.race", race)
