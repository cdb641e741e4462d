"""What a profile found: acceptance and predicted speedups by drafter, costs, predictions checked.

Plain records. They know how to become JSON and which drafter came out best; measuring is
:mod:`slipstream.profiling.profile`'s and drawing :mod:`slipstream.profiling.report`'s.
"""

from __future__ import annotations

import platform
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from slipstream.engine.cost_table import CostTable
from slipstream.profiling.acceptance import Acceptance
from slipstream.profiling.cost import CycleCost, DraftCost, cost_table
from slipstream.profiling.measuring import Measurement
from slipstream.profiling.prediction import SpeedupCurve


@dataclass(frozen=True, kw_only=True)
class DrafterProfile:
    """One drafter at one temperature.

    Args:
        drafter: its name.
        source: what it is made from, a specification or the drafter itself.
        overall: acceptance on all prompts.
        domains: acceptance by domain.
        curve, domain_curves: predicted speedups by k.
        drafting: what the drafter adds to a cycle.
        quit_batch: batch from which on speculation is predicted not to pay; None if it always does.
    """

    drafter: str
    source: Any
    temperature: float
    overall: Acceptance
    domains: dict[str, Acceptance]
    curve: SpeedupCurve
    domain_curves: dict[str, SpeedupCurve]
    drafting: DraftCost
    quit_batch: int | None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "drafter": self.drafter,
            "temperature": self.temperature,
            "acceptance": self.overall.as_dict(),
            "acceptance_by_domain": {d: a.as_dict() for d, a in self.domains.items()},
            "prediction": self.curve.as_dict(),
            "prediction_by_domain": {d: c.as_dict() for d, c in self.domain_curves.items()},
            "draft_cost": asdict(self.drafting),
            "dont_speculate_from_batch": self.quit_batch,
        }


@dataclass(frozen=True, kw_only=True)
class Check:
    """A prediction beside its measurement; ``auto`` has no prediction of its own."""

    drafter: str
    temperature: float
    predicted: float | None
    measured: Measurement

    @property
    def error(self) -> float | None:
        """Relative: predicted over measured, minus 1."""
        if self.predicted is None:
            return None
        return self.predicted / self.measured.speedup.value - 1

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        speedup = self.measured.speedup
        interval = None if np.isnan(speedup.low) else [speedup.low, speedup.high]
        return {
            "drafter": self.drafter,
            "temperature": self.temperature,
            "k": self.measured.k,
            "predicted_speedup": self.predicted,
            "measured_speedup": speedup.value,
            "measured_interval": interval,
            "error": self.error,
            "tokens_per_second": self.measured.tokens_per_second,
            "same_tokens_as_plain": self.measured.same_tokens,
        }


@dataclass(kw_only=True)
class Profile:
    """All that was measured.

    Args:
        cycles: C(rows) at the prompts' own context; predictions use it.
        further: C(rows) at other contexts, for comparison.
        emission: seconds per further emitted token.
        left_out: drafters that could not be profiled, and why.
    """

    model: str
    backend: str
    verify: str
    prompts: int
    cycles: CycleCost
    further: list[CycleCost]
    emission: float
    drafters: list[DrafterProfile] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def ranking(self) -> list[DrafterProfile]:
        """At the first temperature asked for, the largest predicted speedup first."""
        first = self.drafters[0].temperature
        rivals = [d for d in self.drafters if d.temperature == first]
        return sorted(rivals, key=lambda d: -d.curve.speedups[d.curve.best].value)

    @property
    def best(self) -> DrafterProfile:
        """The drafter of the largest predicted speedup, at the first temperature asked for."""
        return self.ranking[0]

    def costs_for(self, drafter: DrafterProfile) -> CostTable:
        """What ``k = auto`` may start from."""
        return cost_table(self.cycles, drafter.drafting)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "machine": {"system": platform.platform(), "processor": platform.processor()},
            "model": self.model,
            "backend": self.backend,
            "verify": self.verify,
            "prompts": self.prompts,
            "cycle_cost": asdict(self.cycles),
            "cycle_cost_elsewhere": [asdict(cycles) for cycles in self.further],
            "emission_seconds": self.emission,
            "drafters": [drafter.as_dict() for drafter in self.drafters],
            "checks": [check.as_dict() for check in self.checks],
            "left_out": self.left_out,
        }
