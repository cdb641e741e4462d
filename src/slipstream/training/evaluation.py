"""What a drafter is worth on held-out text: acceptance, always against the full vocabulary.

``greedy[j]``: how often its best token at depth j + 1 is the target's, given that what was drafted
before was right. ``alpha[j]``: sum of min(p, q) at temperature 1 there; a token that a trimmed
drafter can't propose counts as q = 0. ``acceptance_length``: tokens per target pass of a greedy
chain, over text that the target wrote at temperature 0, where such a chain really runs.
B rows, T positions, P judged positions, V and v vocabularies.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from slipstream.training.distillation import Distillation
from slipstream.training.networks import Batch
from slipstream.training.target import FrozenTarget

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
def evaluate(
    distillation: Distillation, target: FrozenTarget, batches: Sequence[Batch], depths: int
) -> HeldOut:
    """Measure on batches of held-out text.

    Args:
        depths: how deep; a Medusa drafter goes no deeper than its heads.
    """
    network = distillation.network
    full_head = target.head.to(distillation.head.device)
    judged, ranks, alphas = [0] * depths, torch.zeros(depths, _RANKS), torch.zeros(depths)
    chains, links = 0, torch.zeros(depths)
    deepest = depths
    for batch in (one.to(distillation.head.device) for one in batches):
        predictions = network(batch, distillation.embedding, depths)
        deepest = len(predictions)
        hits = torch.zeros(deepest, *batch.tokens.shape, dtype=torch.bool)
        for depth, predicted in enumerate(predictions):
            at = batch.judged(depth + 1)
            order, accepted = _compare(distillation, full_head, batch, predicted, at)
            judged[depth] += len(order)
            alphas[depth] += accepted
            ranks[depth] += order.sum(0)
            hits[depth][at.cpu()] = order[:, 0].bool()
        ran, alive = _chains(batch, hits)
        chains += ran
        links[:deepest] += alive
    counts = torch.tensor(judged[:deepest]).clamp_min(1)
    rates = ranks[:deepest] / counts.unsqueeze(1)
    return HeldOut(
        positions=judged[0],
        greedy=tuple(rates[:, 0].tolist()),
        alpha=tuple((alphas[:deepest] / counts).tolist()),
        acceptance_length=1.0 + float(links.sum()) / chains if chains else None,
        ranks=tuple(tuple(row) for row in rates.tolist()),
    )


def _compare(
    distillation: Distillation, full_head: Tensor, batch: Batch, predicted: Tensor, at: Tensor
) -> tuple[Tensor, float]:
    """(P, ranks) whether the drafter's r-th token is the target's best, and the sum of alphas."""
    features, hidden = batch.features[at], predicted[at].float()
    ids = torch.nonzero(distillation.column >= 0).squeeze(1)
    orders, accepted = [torch.zeros(0, _RANKS)], 0.0
    for first in range(0, len(hidden), _BLOCK):
        logits = features[first : first + _BLOCK] @ full_head.T
        best = logits.argmax(-1)
        drafted = hidden[first : first + _BLOCK] @ distillation.head.T
        ranked = ids[drafted.topk(min(_RANKS, len(ids)), dim=-1).indices]
        order = (ranked == best.unsqueeze(-1)).float().cpu()
        orders.append(torch.nn.functional.pad(order, (0, _RANKS - order.shape[1])))
        p = torch.softmax(logits, -1)[:, ids]
        accepted += float(torch.minimum(p, torch.softmax(drafted, -1)).sum())
    return torch.cat(orders), accepted


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
