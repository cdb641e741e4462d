"""What a request cost and what speculation gained, in the field's words, each defined once here.

``acceptance_length`` (tau) = emitted tokens per target pass, the extra token included.
``alpha`` = mean of sum over v of min(p, q) at the positions that were reached: an estimate from
probabilities, not from coin flips; the only acceptance figure that the formulas may use.
``conditional_acceptance[i]`` = P(accept i | i was reached).
``marginal_acceptance[i]`` = P(accept i), over the cycles that drafted so deep.
``accepted_per_drafted`` falls with the depth mechanically and is never called alpha.

Everything is counted up to a request's end event, except ``drafted`` and the times: they are what
was paid. Times are seconds of wall clock; a batch's cycle counts in full for each of its requests,
because each of them waited for it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from slipstream.types import ROOT, Draft, Verdict


@dataclass(frozen=True, kw_only=True)
class CycleTimes:
    """Seconds that one cycle took, and how many requests shared it."""

    draft: float
    target: float
    rest: float
    batch: int


@dataclass
class RequestStats:
    """Running counts of one request."""

    emitted: int = 0
    cycles: int = 0
    drafted: int = 0
    accepted: int = 0
    reached_at: list[int] = field(default_factory=list)
    accepted_at: list[int] = field(default_factory=list)
    drafted_at: list[int] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    prefill_seconds: float = 0.0
    draft_seconds: float = 0.0
    target_seconds: float = 0.0
    rest_seconds: float = 0.0
    first_token_seconds: float | None = None
    largest_batch: int = 0

    def add_cycle(self, draft: Draft, verdict: Verdict, kept: int) -> None:
        """Count one verdict of which ``kept`` tokens (>= 1) were emitted."""
        self.emitted += kept
        self.cycles += 1
        if not draft.tree.tokens:
            return
        accepted = min(kept, len(verdict.path))
        self.drafted += len(draft)
        self.accepted += accepted
        self.alphas += verdict.alphas[:kept]
        parents = (ROOT, *verdict.path)[:kept]
        depth = draft.tree.depth
        _grow(self.drafted_at, depth)
        _grow(self.reached_at, depth)
        _grow(self.accepted_at, depth)
        for i in range(depth if kept > len(verdict.path) else kept):
            self.drafted_at[i] += 1
        for i, parent in enumerate(parents):
            if draft.receipt(parent) is not None:
                self.reached_at[i] += 1
                self.accepted_at[i] += i < accepted

    def add_times(self, times: CycleTimes) -> None:
        """Add a cycle's times."""
        self.draft_seconds += times.draft
        self.target_seconds += times.target
        self.rest_seconds += times.rest
        if times.batch > self.largest_batch:
            self.largest_batch = times.batch
        if self.first_token_seconds is None:
            self.first_token_seconds = self.prefill_seconds + self.decode_seconds

    @property
    def decode_seconds(self) -> float:
        """Wall clock of all cycles; the prompt's prefill is not in it."""
        return self.draft_seconds + self.target_seconds + self.rest_seconds

    @property
    def tokens_per_second(self) -> float:
        """Emitted tokens by ``decode_seconds``."""
        return self.emitted / self.decode_seconds if self.decode_seconds else 0.0

    @property
    def acceptance_length(self) -> float:
        """tau: emitted tokens per target pass."""
        return self.emitted / self.cycles if self.cycles else 0.0

    @property
    def alpha(self) -> float | None:
        """Mean sum of min(p, q) over reached drafted positions; None if nothing was drafted."""
        return sum(self.alphas) / len(self.alphas) if self.alphas else None

    @property
    def conditional_acceptance(self) -> list[float | None]:
        """P(accept i | reached i); None where never reached."""
        return [
            a / r if r else None for a, r in zip(self.accepted_at, self.reached_at, strict=True)
        ]

    @property
    def marginal_acceptance(self) -> list[float | None]:
        """P(accept i) over the cycles that drafted to depth i."""
        return [
            a / d if d else None for a, d in zip(self.accepted_at, self.drafted_at, strict=True)
        ]

    @property
    def accepted_per_drafted(self) -> float | None:
        """Accepted by drafted tokens; None if nothing was drafted."""
        return self.accepted / self.drafted if self.drafted else None

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "emitted": self.emitted,
            "cycles": self.cycles,
            "drafted": self.drafted,
            "accepted": self.accepted,
            "acceptance_length": self.acceptance_length,
            "alpha": self.alpha,
            "conditional_acceptance": self.conditional_acceptance,
            "marginal_acceptance": self.marginal_acceptance,
            "accepted_per_drafted": self.accepted_per_drafted,
            "tokens_per_second": self.tokens_per_second,
            "prefill_seconds": self.prefill_seconds,
            "first_token_seconds": self.first_token_seconds,
            "draft_seconds": self.draft_seconds,
            "target_seconds": self.target_seconds,
            "rest_seconds": self.rest_seconds,
            "largest_batch": self.largest_batch,
        }


def _grow(counts: list[int], length: int) -> None:
    counts.extend([0] * (length - len(counts)))
