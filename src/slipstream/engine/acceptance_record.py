"""How far drafts of a request get: running acceptance by depth, with what other requests teach.

Three chances are kept at every depth: that a draft which got here has a token here (*present*);
the same, given that everything above was accepted (*offered*); and that the token is accepted once
it is reached (*alpha*). Alpha is learnt from the sum of min(p, q) that a verdict reports, not from
the coin that was flipped with it; a running ratio of flips to alphas corrects for rules and trees
whose chance is another.

A request's record leans on the pool of its engine, and a depth that nobody has seen on the depth
above it: who does better than the pool at one depth is expected to at the next. Observations fade
with every cycle, so that a shift is forgotten into the pool. Knows no cost and no tokens.
Shape letter: D depths.
"""

from __future__ import annotations

import math
from typing import Final, TypeAlias

import numpy as np

from slipstream.types import Draft, Verdict

_LEAN_ON_POOL, _LEAN_ON_DEPTH = 6.0, 12.0
"""How many observations the expectation counts as, against a record's own: a request's from the
pool, and the pool's from the depth above. Chosen among 36 settings of these, the memories and the
odds below, by replaying answers of a 135M model (docs/tuning.md); leaning on the pool harder gained
more there, but was slow to follow a shift."""

_FIRST_PRESENT, _FIRST_ALPHA = 0.9, 0.7
"""Before anything is known: there is a draft, and it is worth trying."""

_LEAST: Final = 0.02
"""Levels that are accepted less often than this can bring next to nothing."""

# Rows of the sums: weight and weighted successes of each chance.
_PRESENT, _OFFERED, _ALPHA = 0, 2, 4


Chances: TypeAlias = tuple[float, float, float]
"""At one depth: present, offered and alpha, as in the module's docstring."""

Reach: TypeAlias = tuple[float, float]
"""Of one level: the chance that it is drafted, and the chance that it is accepted."""


class AcceptanceRecord:
    """Running chances by depth of one request, or of all requests of an engine.

    Args:
        deepest: D, levels to keep.
        memory: cycles after which an observation counts 1/e.
        pool: the record that this one leans on; None for the pool itself.
    """

    def __init__(
        self, deepest: int, *, memory: float, pool: AcceptanceRecord | None = None
    ) -> None:
        self._sums_6D = np.zeros((6, deepest))
        self._fade = 1 - 1 / memory
        self._pool = pool
        self._flips = self._alphas = 16.0
        self._chances: list[Chances] | None = None

    def update(self, draft: Draft, verdict: Verdict, asked: int) -> None:
        """Learn from a verdict on a draft that was allowed ``asked`` levels, at least one."""
        self.skip()
        sums_6D = self._sums_6D
        deepest = max(draft.tree.depths, default=0)
        sums_6D[_PRESENT, : min(asked, deepest + 1)] += 1
        sums_6D[_PRESENT + 1, :deepest] += 1
        reached = len(verdict.alphas)
        ran_out = reached == len(verdict.path) and reached < asked  # all accepted, no more there
        sums_6D[_OFFERED, : reached + ran_out] += 1
        sums_6D[_OFFERED + 1, :reached] += 1
        sums_6D[_ALPHA, :reached] += 1
        sums_6D[_ALPHA + 1, :reached] += np.minimum(np.multiply(verdict.alphas, self.scale), 1)
        self._flips = self._flips * self._fade + len(verdict.path)
        self._alphas = self._alphas * self._fade + sum(verdict.alphas)

    def skip(self) -> None:
        """A cycle without a draft: only time passes."""
        self._sums_6D *= self._fade
        self._chances = None

    @property
    def scale(self) -> float:
        """Flips per alpha: below 1 for coupled samples, above it for trees with siblings."""
        if self._pool is not None:
            return self._pool.scale
        return (self._flips + 16.0) / (self._alphas + 16.0)

    def reach(self, deepest: int) -> list[Reach]:
        """What each level is expected to bring; ends where that is next to nothing."""
        levels: list[Reach] = []
        drafted = accepted = 1.0
        for present, offered, alpha in self.chances()[:deepest]:
            drafted *= present
            accepted *= offered * alpha
            if accepted < _LEAST:
                break
            levels.append((max(drafted, accepted), accepted))
        return levels

    def chances(self) -> list[Chances]:
        """The three chances, by depth; ends like :meth:`reach`."""
        if self._chances is None:
            expected = None if self._pool is None else self._pool.chances()
            self._chances = self._lean(expected)
        return self._chances

    def _lean(self, pool: list[Chances] | None) -> list[Chances]:
        """The record's own ratios, drawn towards what the pool and the level above let expect."""
        levels: list[Chances] = []
        present, offered, alpha = _FIRST_PRESENT, _FIRST_PRESENT, _FIRST_ALPHA
        odds = accepted = 1.0  # odds: ours against the pool's, of acceptance one level above
        lean, last = _LEAN_ON_DEPTH if pool is None else _LEAN_ON_POOL, _LEAST
        for depth, (n, has, m, goes, r, takes) in enumerate(self._sums_6D.T.tolist()):
            if pool is None:
                if depth == 1:  # whether there is a draft says little about its length
                    present = offered = _FIRST_PRESENT
            elif depth < len(pool):
                present, offered, theirs = pool[depth]
                alpha = theirs * odds / (1 - theirs + theirs * odds)
            else:
                theirs = alpha
            present = (has + lean * present) / (n + lean)
            offered = (goes + lean * offered) / (m + lean)
            alpha = (takes + lean * alpha) / (r + lean)
            if pool is not None:
                odds = (alpha + 1e-3) * (1.001 - theirs) / ((theirs + 1e-3) * (1.001 - alpha))
                odds = math.sqrt(odds)  # half of what we beat them by is luck
            levels.append((present, offered, alpha))
            accepted *= offered * alpha
            if accepted < last:
                break
        return levels
