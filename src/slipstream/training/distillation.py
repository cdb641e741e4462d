"""One training step's loss: predictions of every depth against the target, in two spaces.

Feature loss: smooth L1 between predicted and true feature. Token loss: a distance between p and q,
both by the target's LM head, over a sample of positions and of tokens, because on a small model the
head costs more than the drafter itself.

The sample of tokens is the target's best few at all sampled positions, and random others, each
standing for as many as were left out: the sums of :mod:`slipstream.training.losses` stay unbiased
in what they sum. p is the target's own, from its cached feature and normaliser.
B rows, T positions, P sampled positions, C candidates, v drafter vocabulary, K top.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from slipstream.training.losses import LOSSES, alpha, log_softmax, masked_mean, toward_greedy
from slipstream.training.networks import Batch, Network
from slipstream.training.target import FrozenTarget


@dataclass(frozen=True, kw_only=True)
class Objective:
    """What is minimised.

    Args:
        loss: a name of :data:`slipstream.training.losses.LOSSES`.
        greedy_share: how much of p is moved to the target's best token.
        feature_weight: of the feature loss beside the token loss.
        depths: how many tokens deep predictions are made.
        shallow: share of the run, at its beginning, in which depth 1 alone is trained.
        depth_decay: weight of each depth relative to the one before.
        noise: standard deviation added to features, relative to their own.
        positions: most positions per row that the token loss looks at, at every depth; 0 is all.
        others: random tokens beside the target's best; 0 is the whole drafter vocabulary.
    """

    loss: str = "hybrid"
    greedy_share: float = 0.3
    feature_weight: float = 0.1
    depths: int = 1
    shallow: float = 0.0
    depth_decay: float = 0.8
    noise: float = 0.0
    positions: int = 0
    others: int = 0


@dataclass(frozen=True)
class Candidates:
    """Tokens of the drafter's vocabulary that a step looks at.

    Args:
        columns: (C,) indices into the drafter vocabulary.
        log_weights: (C,) log of how many tokens each stands for.
        place: (v,) index of a token among the columns, -1 if it isn't there.
    """

    columns: Tensor
    log_weights: Tensor
    place: Tensor


@dataclass(frozen=True)
class Wanted:
    """The target at the sampled positions, the same for every depth.

    Args:
        candidates: the tokens looked at.
        rows: (C, H) the head's, of those.
        p: (P, C) the target's probabilities.
        mixed: (P, C) what is trained towards, see :func:`toward_greedy`.
    """

    candidates: Candidates
    rows: Tensor
    p: Tensor
    mixed: Tensor

    def accepted(self, log_q: Tensor) -> Tensor:
        """Mean alpha of a drafter's (P, C) log q."""
        return alpha(log_q, self.p, self.candidates.log_weights).sum() / max(1, len(log_q))


class Distillation(nn.Module):  # type: ignore[misc]
    """A network and its objective over a frozen target; what a distributed trainer wraps.

    Args:
        network: trained.
        target: frozen; the drafter uses its embedding and the vocabulary's rows of its head.
        objective: what is minimised.
        vocabulary: (v,) target ids that the drafter can propose; None for all.
        device: where the target's matrices lie; the network is moved by the trainer.
    """

    def __init__(
        self,
        network: Network,
        target: FrozenTarget,
        objective: Objective,
        vocabulary: npt.NDArray[np.int64] | None,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__()
        self.network = network
        self.objective = objective
        size = len(target.head)
        ids = torch.arange(size) if vocabulary is None else torch.from_numpy(vocabulary)
        column = torch.full((size,), -1).scatter_(0, ids, torch.arange(len(ids)))
        # No buffers: a distributed trainer would send the whole target around at every step.
        self.embedding = target.embedding.to(device)
        self.head = (target.head if vocabulary is None else target.head[ids]).to(device)
        self.ids, self.column = ids.to(device), column.to(device)

    def forward(
        self, batch: Batch, seed: int, done: float = 1.0
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of a batch, and what to report: ``loss``, ``feature_loss``, ``alpha``.

        Args:
            seed: of noise and samples; the same seed gives the same loss.
            done: share of the run that lies behind.
        """
        objective = self.objective
        draw = torch.Generator(batch.tokens.device).manual_seed(seed)
        noise = None
        if objective.noise:
            scale = objective.noise * _spread(batch.features)
            noise = scale * torch.randn(batch.features.shape, generator=draw, device=scale.device)
        depths = objective.depths if done >= objective.shallow else 1
        predictions = self.network(batch, self.embedding, depths, noise)

        at = _sample(batch.judged(len(predictions)), objective.positions, draw)
        wanted = self._wanted(batch, at, draw)
        total = torch.zeros((), device=batch.features.device)
        report: dict[str, Tensor] = {}
        weights = [objective.depth_decay**i for i in range(len(predictions))]
        for depth, (predicted, weight) in enumerate(zip(predictions, weights, strict=True)):
            log_q = log_softmax(
                (predicted[at] @ wanted.rows.T).float(), wanted.candidates.log_weights
            )
            losses = LOSSES[objective.loss](log_q, wanted.mixed, wanted.candidates.log_weights)
            loss = losses.sum() / max(1, len(log_q))
            if objective.feature_weight:
                distance = nn.functional.smooth_l1_loss(
                    predicted.float(), batch.features, reduction="none"
                )
                feature_loss = masked_mean(distance.mean(-1), batch.judged(depth + 1))
                loss = loss + objective.feature_weight * feature_loss
                if depth == 0:
                    report["feature_loss"] = feature_loss.detach()
            total = total + loss * (weight / sum(weights))
            if depth == 0:
                report["alpha"] = wanted.accepted(log_q.detach())
        report["loss"] = total.detach()
        return total, report

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def _wanted(self, batch: Batch, at: Tensor, draw: torch.Generator) -> Wanted:
        """What the target says at (B, T) bool sampled positions."""
        candidates = self._candidates(batch.top_ids[at], draw)
        rows = self.head[candidates.columns]
        p = (batch.features[at] @ rows.T - batch.normalisers[at].unsqueeze(-1)).exp()
        best = self.column[batch.top_ids[at][:, 0]]
        best = torch.where(best < 0, best, candidates.place[best.clamp_min(0)])
        return Wanted(candidates, rows, p, toward_greedy(p, best, self.objective.greedy_share))

    def _candidates(self, top_ids: Tensor, draw: torch.Generator) -> Candidates:
        size, device = len(self.head), self.head.device
        if not self.objective.others:
            everything = torch.arange(size, device=device)
            return Candidates(everything, torch.zeros(size, device=device), everything)
        certain = torch.zeros(size, dtype=torch.bool, device=device)
        columns = self.column[top_ids.reshape(-1)]
        certain[columns[columns >= 0]] = True
        rest = torch.nonzero(~certain).squeeze(1)
        count = min(self.objective.others, len(rest))
        if count:
            rest = rest[torch.randperm(len(rest), generator=draw, device=device)]
            weight = math.log(len(rest) / count)
        else:
            weight = 0.0
        chosen = torch.cat([torch.nonzero(certain).squeeze(1), rest[:count]])
        log_weights = torch.zeros(len(chosen), device=device)
        log_weights[len(chosen) - count :] = weight
        place = torch.full((size,), -1, device=device)
        place[chosen] = torch.arange(len(chosen), device=device)
        return Candidates(chosen, log_weights, place)


def _sample(mask: Tensor, most: int, draw: torch.Generator) -> Tensor:
    """At most ``most`` random true positions per row of a (B, T) mask."""
    if not most or most >= mask.shape[1]:
        return mask
    order = torch.rand(mask.shape, generator=draw, device=mask.device).masked_fill(~mask, -1.0)
    kept = order.topk(most, dim=1).indices
    return torch.zeros_like(mask).scatter_(1, kept, True) & mask


def _spread(features: Tensor) -> Tensor:
    """Root mean square of the features that are there."""
    there = features.any(-1)
    return features[there].pow(2).mean().sqrt() if there.any() else features.new_zeros(())
