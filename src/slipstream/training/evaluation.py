"""What a drafter is worth on held-out text: acceptance, always against the full vocabulary.

``greedy[j]``: how often its best token at depth j + 1 is the target's, given that what was drafted
before was right. ``alpha[j]``: sum of min(p, q) at temperature 1 there; a token that a trimmed
drafter can't propose counts as q = 0. ``acceptance_length``: tokens per target pass of a greedy
chain, over text that the target wrote at temperature 0, where such a chain really runs.
B rows, T positions, P judged positions, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from slipstream.training.distillation import Distillation
from slipstream.training.networks import Batch

_BLOCK = 512
_RANKS = 10


@dataclass(frozen=True)
class HeldOut:
    """Figures by depth, depth 1 first.

    Args:
        positions: judged at depth 1.
        greedy, alpha: see the module.
        acceptance_length: see the module; None without text of temperature 0.
        ranks: by depth, then by rank: how often the drafter's r-th best token was the target's.
    """

    positions: int
    greedy: tuple[float, ...]
    alpha: tuple[float, ...]
    acceptance_length: float | None
    ranks: tuple[tuple[float, ...], ...]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the ranks."""
        values = asdict(self)
        del values["ranks"]
        return values


@torch.no_grad()  # type: ignore[untyped-decorator]
def evaluate(distillation: Distillation, batches: Sequence[Batch], depths: int) -> HeldOut:
    """Measure on batches of held-out text.

    Args:
        depths: how deep; a Medusa drafter goes no deeper than its heads.
    """
    judged, ranks, alphas = torch.zeros(depths), torch.zeros(depths, _RANKS), torch.zeros(depths)
    chains, links = 0, torch.zeros(depths)
    deepest = depths
    for batch in (one.to(distillation.head.device) for one in batches):
        predictions = distillation.network(batch, distillation.embedding, depths)
        deepest = len(predictions)
        hits = torch.zeros(deepest, *batch.tokens.shape, dtype=torch.bool)
        for where in torch.nonzero(batch.judged(1)).split(_BLOCK):
            at = tuple(where.T)
            p = _target_probabilities(distillation, batch, at)
            for depth, predicted in enumerate(predictions):
                valid = batch.judged(depth + 1)[at].unsqueeze(-1)
                right, accepted = _compare(distillation, batch.top_ids[at][:, :1], p, predicted[at])
                right, accepted = (right & valid).cpu(), accepted * valid.squeeze(-1)
                judged[depth] += int(valid.sum())
                alphas[depth] += float(accepted.sum())
                ranks[depth, : right.shape[1]] += right.sum(0)
                hits[depth][tuple(index.cpu() for index in at)] = right[:, 0]
        ran, alive = _chains(batch, hits)
        chains += ran
        links[:deepest] += alive
    counts = judged[:deepest].clamp_min(1)
    rates = ranks[:deepest] / counts.unsqueeze(1)
    return HeldOut(
        positions=int(judged[0]),
        greedy=tuple(rates[:, 0].tolist()),
        alpha=tuple((alphas[:deepest] / counts).tolist()),
        acceptance_length=1.0 + float(links.sum()) / chains if chains else None,
        ranks=tuple(tuple(row) for row in rates.tolist()),
    )


def _target_probabilities(
    distillation: Distillation, batch: Batch, at: tuple[Tensor, ...]
) -> Tensor:
    """(P, v) the target's probabilities of the drafter's tokens.

    The normaliser is that of the target's whole vocabulary, so a row sums to what the drafter's
    vocabulary can cover; rounding of cached features could lift it above 1, and may not.
    """
    logits = batch.features[at] @ distillation.head.T
    p = (logits - batch.normalisers[at].unsqueeze(-1)).exp()
    return p / p.sum(-1, keepdim=True).clamp_min(1.0)


def _compare(
    distillation: Distillation, best: Tensor, p: Tensor, predicted: Tensor
) -> tuple[Tensor, Tensor]:
    """(P, ranks) whether the drafter's r-th token is the target's best, and (P,) alphas."""
    drafted = predicted.float() @ distillation.head.T
    order = drafted.topk(min(_RANKS, drafted.shape[-1]), dim=-1).indices
    return distillation.ids[order] == best, torch.minimum(p, drafted.softmax(-1)).sum(-1)


def _chains(batch: Batch, hits: Tensor) -> tuple[int, Tensor]:
    """How many greedy chains ran, and how many of them got past each depth.

    A chain whose first guess is judged at s has its guess of depth j judged at s + j - 1. Chains
    that would leave the text are not counted.
    """
    depths, _, T = hits.shape
    greedy_text = (batch.learn & (batch.temperatures == 0)).cpu()
    last = T - depths + 1
    runs = batch.judged(1).cpu()[:, :last] & greedy_text[:, :last]
    for depth in range(1, depths):
        here = slice(depth, last + depth)
        runs &= greedy_text[:, here] & batch.judged(depth + 1).cpu()[:, here]
    alive, passed = runs.clone(), []
    for depth in range(depths):
        alive &= hits[depth][:, depth : last + depth]
        passed.append(int(alive.sum()))
    return int(runs.sum()), torch.tensor(passed, dtype=torch.float32)
