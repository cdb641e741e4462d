"""How far drafts of a request get: running acceptance by depth, with what other requests teach.

Three chances are kept at every depth: that a draft which got here has a token here (*present*);
the same, given that everything above was accepted (*offered*); and that the token is accepted once
it is reached (*alpha*). Alpha is learnt from the sum of min(p, q) that a verdict reports, not from
the coin that was flipped with it; a running ratio of flips to alphas corrects for rules and trees
whose chance is another.

A request's record leans on the pool of its engine, and a depth that nobody has seen on the depth
above it: who does better than the pool at one depth is expected to at the next. Observations fade
with every later one, and at once when the recent ones together can't be luck: that lets the memory
be long where nothing shifts. Knows no cost and no tokens. Shape letter: D depths.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import sqrt
from typing import Final, TypeAlias

from slipstream.types import Verdict

_LEAN_ON_POOL, _LEAN_ON_DEPTH = 20.0, 12.0
"""How many observations the expectation counts as, against a record's own: a request's from the
pool, and the pool's from the depth above. Chosen with the memories by replaying answers of a 135M
model (docs/tuning.md): requests differ less from each other than their luck does."""

_FIRST_PRESENT, _FIRST_ALPHA = 0.9, 0.7
"""Before anything is known: there is a draft, and it is worth trying."""

_RECENT, _SHIFT, _FORGET = 0.9, 3.0, 3.0
"""How a surprise fades with every later draft, so many standard deviations of all recent ones
together that show a shift, and how much less the past counts after it."""

_LEAST_SPREAD: Final = 0.2
"""Variance of surprises that is always allowed for: an alpha near 0 or 1 is only an estimate."""

_LEAST: Final = 0.02
"""Levels that are accepted less often than this can bring next to nothing."""

_HEAVY: Final = 1e12
"""Weights are brought back to 1 from here."""

Chances: TypeAlias = tuple[float, float, float]
"""At one depth: present, offered and alpha, as in the module's docstring."""

Reach: TypeAlias = tuple[float, float]
"""Of one level: the chance that it is drafted, and the chance that it is accepted."""


class _Level:
    """Weighted tries and successes of the three chances at one depth."""

    __slots__ = ("accepted", "drafted", "offered", "present", "reached", "tried")

    def __init__(self) -> None:
        self.tried = self.present = 0.0  # the level was allowed: there was a token
        self.reached = self.offered = 0.0  # all above was accepted: there was a token
        self.drafted = self.accepted = 0.0  # there was a token, and it was reached: accepted

    def scale(self, factor: float) -> None:
        for name in self.__slots__:
            setattr(self, name, getattr(self, name) * factor)


class AcceptanceRecord:
    """Running chances by depth of one request, or of all requests of an engine.

    Args:
        deepest: D, levels to keep.
        memory: drafts after which an observation counts 1/e.
        pool: the record that this one leans on; None for the pool itself.
    """

    def __init__(
        self, deepest: int, *, memory: float, pool: AcceptanceRecord | None = None
    ) -> None:
        self._levels = [_Level() for _ in range(deepest)]
        # What is new weighs more every time, instead of all that is old being faded.
        self._weight, self._growth = 1.0, memory / (memory - 1)
        self._pool = pool
        self._flips = self._alphas = 16.0
        self._drafts = self._due = 0  # seen so far; when chances are to be worked out anew
        self._chances: list[Chances] = []
        # Sum and variance of recent alphas against what was expected of them.
        self._surprise = self._spread = 0.0

    def update(self, depth: int, verdict: Verdict, asked: int) -> None:
        """Learn from a verdict on a draft of this depth that was allowed ``asked`` >= 1 levels."""
        self._weight = weight = self._weight * self._growth
        scale, alphas = self.scale, verdict.alphas
        reached, accepted = len(alphas), len(verdict.path)
        surprise, spread = self._surprise * _RECENT, self._spread * _RECENT**2
        for index in range(min(asked, depth + 1)):
            level = self._levels[index]
            level.tried += weight
            if index < depth:
                level.present += weight
            if index < reached:
                alpha = min(alphas[index] * scale, 1.0)
                expected = level.accepted / level.drafted if level.drafted else alpha
                surprise += alpha - expected
                spread += expected * (1 - expected)
                level.reached += weight
                level.offered += weight
                level.drafted += weight
                level.accepted += weight * alpha
            elif index == reached == accepted:  # all accepted, and no more there
                level.reached += weight
        self._drafts += 1
        if surprise**2 > _SHIFT**2 * (spread + _LEAST_SPREAD):
            self._weight *= _FORGET
            self._due = self._drafts
            surprise = spread = 0.0
        self._surprise, self._spread = surprise, spread
        self._flips = self._flips / self._growth + accepted
        self._alphas = self._alphas / self._growth + sum(alphas)
        if self._weight > _HEAVY:
            for level in self._levels:
                level.scale(1 / self._weight)
            self._weight = 1.0

    @property
    def scale(self) -> float:
        """Flips per alpha: below 1 for coupled samples, above it for trees with siblings."""
        if self._pool is not None:
            return self._pool.scale
        return (self._flips + 16.0) / (self._alphas + 16.0)

    def reach(self) -> Iterator[Reach]:
        """What each level is expected to bring; ends where that is next to nothing."""
        drafted = accepted = 1.0
        for present, offered, alpha in self.chances():
            drafted *= present
            accepted *= offered * alpha
            if accepted < _LEAST * drafted or accepted < 0.1 * _LEAST:
                return
            yield max(drafted, accepted), accepted

    def chances(self) -> Iterable[Chances]:
        """The three chances, by depth.

        A request's are worked out as far as they are asked for; the pool's, which move slowly, when
        they are an eighth of its drafts old, at most eight.
        """
        if self._pool is not None:
            return self._against(self._pool)
        if self._drafts >= self._due:
            self._chances = list(self._by_depth())
            self._due = self._drafts + max(min(self._drafts, 64) // 8, 1)
        return self._chances

    def _by_depth(self) -> Iterator[Chances]:
        """The pool's own ratios, the alphas drawn towards those of the level above."""
        lean = _LEAN_ON_DEPTH * self._weight
        present = offered = _FIRST_PRESENT
        alpha = _FIRST_ALPHA
        for level in self._levels:
            present = (level.present + lean * present) / (level.tried + lean)
            offered = (level.offered + lean * offered) / (level.reached + lean)
            alpha = (level.accepted + lean * alpha) / (level.drafted + lean)
            yield present, offered, alpha
            # That few got here says little about how far they go on.
            present, offered = max(present, _FIRST_PRESENT), max(offered, _FIRST_PRESENT)

    def _against(self, pool: AcceptanceRecord) -> Iterator[Chances]:
        """The record's own ratios, drawn towards what the pool and the level above let expect."""
        lean = _LEAN_ON_POOL * self._weight
        odds = 1.0  # ours against the pool's, of acceptance one level above
        for level, (present, offered, theirs) in zip(self._levels, pool.chances(), strict=True):
            expected = theirs * odds / (1 - theirs + theirs * odds)
            alpha = (level.accepted + lean * expected) / (level.drafted + lean)
            yield (
                (level.present + lean * present) / (level.tried + lean),
                (level.offered + lean * offered) / (level.reached + lean),
                alpha,
            )
            # Half of what we beat them by is luck.
            odds = sqrt((alpha + 1e-3) * (1.001 - theirs) / ((theirs + 1e-3) * (1.001 - alpha)))
