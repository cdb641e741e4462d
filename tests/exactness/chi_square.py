"""Goodness of fit with a stated false-alarm bound and a stated power.

Pearson's statistic over multinomial counts, one set for each context. If a law is off by total
variation distance d in every context, the noncentrality is at least 4 n d^2 for n counts (Cauchy
and Schwarz), whatever the direction: so the test knows the least d that it finds, and with which
probability.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy import optimize, stats

from tests.exactness.small_laws import Law, Probs

FALSE_ALARM = 1e-9
"""Chance that a correct law is called wrong."""


@dataclass(frozen=True)
class Fit:
    """Outcome of a test.

    Args:
        statistic: Pearson's X^2.
        freedom: degrees of freedom.
        counts: how many observations.
        impossible: observations of what has probability 0.
    """

    statistic: float
    freedom: int
    counts: int
    impossible: int = 0

    @property
    def rejected(self) -> bool:
        """Whether the observations contradict the law at the false-alarm bound."""
        return self.impossible > 0 or bool(
            stats.chi2.sf(self.statistic, self.freedom) < FALSE_ALARM
        )

    def power(self, distance: float) -> float:
        """Chance of rejecting a law that is off by this total variation distance."""
        critical = stats.chi2.isf(FALSE_ALARM, self.freedom)
        return float(stats.ncx2.sf(critical, self.freedom, 4 * self.counts * distance**2))

    def detectable(self, power: float = 0.9) -> float:
        """The least total variation distance that is found with this chance."""
        return float(optimize.brentq(lambda d: self.power(d) - power, 1e-4, 1.0))


def fit(counts: Mapping[tuple[int, ...], Probs], law: Law) -> Fit:
    """Compare token counts, by context, with a law of positive expected counts.

    Args:
        counts: context -> (V,) how often each token followed it.
        law: the exact distribution of a token given its context.
    """
    statistic, freedom, total, impossible = 0.0, 0, 0, 0
    for context, observed in counts.items():
        probs = law(context)
        possible = probs > 0.0
        expected = observed.sum() * probs[possible]
        assert expected.min() >= 5, f"too few observations of context {context}"
        statistic += float(np.sum((observed[possible] - expected) ** 2 / expected))
        freedom += int(possible.sum()) - 1
        total += int(observed.sum())
        impossible += int(observed[~possible].sum())
    return Fit(statistic, freedom, total, impossible)


def count_transitions(
    texts: list[tuple[int, ...]], order: int, size: int
) -> dict[tuple[int, ...], Probs]:
    """How often each token follows each context of ``order`` tokens."""
    counts: dict[tuple[int, ...], Probs] = {}
    for text in texts:
        for end in range(order, len(text)):
            context = text[end - order : end]
            counts.setdefault(context, np.zeros(size))[text[end]] += 1
    return counts
