"""How often drafts are accepted, by position, with bootstrap intervals over prompts.

The four rates keep their names: *alpha*, the mean of sum min(p, q) at a position that was reached
(1 - alpha is D_TV); *conditional* acceptance, P(accept i | reached i); *marginal*, P(accept i); and
what is accepted per drafted token, which falls with k by itself and is not reported. Prompts, not
tokens, are what one draws from traffic, so intervals resample prompts; with fewer than two there is
no interval, and none is made up. Shape letters: P prompts, K depth, S resamples.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from slipstream.profiling.recording import PromptRecord

FloatArray = npt.NDArray[np.float64]

RESAMPLES: Final = 1000


class Estimate(NamedTuple):
    """A value and its 95 % interval; NaN where there is nothing to tell.

    Args:
        value: the estimate.
        low, high: of the interval; both NaN with fewer than two prompts.
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True, kw_only=True)
class Acceptance:
    """A drafter's record on some prompts.

    Args:
        prompts, tokens, cycles: how much there was.
        hit_rate: share of cycles that had a draft.
        alpha: mean over all positions reached.
        alphas: (K,) by position.
        conditional, marginal: (K,) acceptance by position.
        tokens_per_cycle: acceptance length tau.
        failure_clustering: P(first token rejected | so it was in the cycle before) over P(first
            token rejected); 1 if failures were independent.
        entropy: the target's, in nats, by prompts of which it is known.
    """

    prompts: int
    tokens: int
    cycles: int
    hit_rate: Estimate
    alpha: Estimate
    alphas: tuple[Estimate, ...]
    conditional: tuple[Estimate, ...]
    marginal: tuple[Estimate, ...]
    tokens_per_cycle: Estimate
    failure_clustering: Estimate
    entropy: Estimate

    @property
    def distance(self) -> float:
        """D_TV between target and drafter at the positions reached."""
        return 1 - self.alpha.value

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON; NaN becomes None."""
        values = asdict(self)
        values["distance"] = self.distance
        plain = _without_nan(values)
        assert isinstance(plain, dict)
        return plain


def resamples(prompts: int, count: int = RESAMPLES) -> FloatArray:
    """(S, P) how often each prompt is drawn in each bootstrap resample."""
    rng = np.random.default_rng(0)
    return rng.multinomial(prompts, np.full(prompts, 1 / prompts), count).astype(np.float64)


def ratio(numerators_P: FloatArray, denominators_P: FloatArray) -> Estimate:
    """A ratio of sums over prompts, and its percentile bootstrap interval."""
    total = float(denominators_P.sum())
    value = float(numerators_P.sum()) / total if total else float("nan")
    if len(numerators_P) < 2 or not total:
        return Estimate(value, float("nan"), float("nan"))
    weights_SP = resamples(len(numerators_P))
    below_S = weights_SP @ denominators_P
    some = below_S > 0
    draws = (weights_SP @ numerators_P)[some] / below_S[some]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def summarise(records: Sequence[PromptRecord]) -> Acceptance:
    """The record of some prompts, at least one."""
    depth = max((cycle.depth for record in records for cycle in record.cycles), default=0)
    shape = (len(records), depth)
    alphas_PK, reached_PK, accepted_PK, drafted_PK = (np.zeros(shape) for _ in range(4))
    cycles_P, hits_P, failures_P, followed_P, again_P = np.zeros((5, len(records)))
    firsts_P = np.zeros(len(records))
    for p, record in enumerate(records):
        before: bool | None = None  # whether the cycle before rejected its first token
        for cycle in record.cycles:
            reached = len(cycle.alphas)
            alphas_PK[p, :reached] += cycle.alphas
            reached_PK[p, :reached] += 1
            accepted_PK[p, : cycle.accepted] += 1
            drafted_PK[p, : cycle.depth] += 1
            cycles_P[p] += 1
            hits_P[p] += cycle.depth > 0
            if not cycle.depth:
                continue
            failed = cycle.accepted == 0
            firsts_P[p] += 1
            failures_P[p] += failed
            if before:
                followed_P[p] += 1
                again_P[p] += failed
            before = failed
    tokens_P = np.array([float(record.tokens) for record in records])
    entropy_P = np.array([record.entropy for record in records])
    told_P = np.where(np.isnan(entropy_P), 0.0, tokens_P)
    return Acceptance(
        prompts=len(records),
        tokens=int(tokens_P.sum()),
        cycles=int(cycles_P.sum()),
        hit_rate=ratio(hits_P, cycles_P),
        alpha=ratio(alphas_PK.sum(axis=1), reached_PK.sum(axis=1)),
        alphas=tuple(ratio(alphas_PK[:, i], reached_PK[:, i]) for i in range(depth)),
        conditional=tuple(ratio(accepted_PK[:, i], reached_PK[:, i]) for i in range(depth)),
        marginal=tuple(ratio(accepted_PK[:, i], drafted_PK[:, i]) for i in range(depth)),
        tokens_per_cycle=ratio(tokens_P, cycles_P),
        failure_clustering=_clustering(again_P, followed_P, failures_P, firsts_P),
        entropy=ratio(np.nan_to_num(entropy_P) * told_P, told_P),
    )


def by_domain(records: Sequence[PromptRecord]) -> dict[str, list[PromptRecord]]:
    """Records by domain, in order of first appearance."""
    groups: dict[str, list[PromptRecord]] = {}
    for record in records:
        groups.setdefault(record.domain, []).append(record)
    return groups


def _clustering(
    again_P: FloatArray, followed_P: FloatArray, failures_P: FloatArray, firsts_P: FloatArray
) -> Estimate:
    nan = float("nan")
    if not followed_P.sum() or not failures_P.sum():
        return Estimate(nan, nan, nan)
    value = again_P.sum() / followed_P.sum() * firsts_P.sum() / failures_P.sum()
    if len(again_P) < 2:
        return Estimate(float(value), nan, nan)
    weights_SP = resamples(len(again_P))
    sums = [weights_SP @ counts for counts in (again_P, followed_P, failures_P, firsts_P)]
    some = (sums[1] > 0) & (sums[2] > 0)
    draws = sums[0][some] / sums[1][some] * sums[3][some] / sums[2][some]
    low, high = np.quantile(draws, [0.025, 0.975])
    return Estimate(float(value), float(low), float(high))


def _without_nan(value: Any) -> Any:
    if isinstance(value, Estimate):
        return dict(zip(Estimate._fields, (_without_nan(v) for v in value), strict=True))
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    if isinstance(value, float) and np.isnan(value):
        return None
    return value
