"""Distances between what the target says (p) and what the drafter says (q), per position.

Acceptance at a position is alpha = sum of min(p, q) = 1 - D_TV(p, q) (Leviathan et al. 2211.17192),
so the total variation *is* the objective; the others are easier to descend far from the goal.
Every function takes ``log_q`` (..., C), ``p`` (..., C) and ``log_weights`` (C,) and returns (...,).

C candidates are the drafter's vocabulary, or a sample of it: a candidate of weight w stands for w
tokens like itself, and every sum over tokens is a weighted sum over candidates. ``p`` is the
target's own probability and may sum to less than 1: mass outside the drafter's vocabulary can never
be accepted, and counts as lost. So KL divergences are the generalised ones, sum of
a log(a/b) - a + b, which stay >= 0 and lose nothing but a constant. Knows no model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final, TypeAlias

import torch

Tensor: TypeAlias = torch.Tensor
Loss: TypeAlias = Callable[[Tensor, Tensor, Tensor], Tensor]

_TINY: Final = 1e-30


def log_softmax(logits: Tensor, log_weights: Tensor) -> Tensor:
    """(..., C) log q of one token each, where a candidate stands for exp(log_weight) tokens."""
    return torch.log_softmax(logits + log_weights, dim=-1) - log_weights


def alpha(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """Sum of min(p, q): the probability that one drafted token is accepted."""
    return _total(torch.minimum(log_q.exp(), p), log_weights)


def cross_entropy(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """-sum of p log q; with a one-hot p, -log q of that token."""
    return -_total(p * log_q, log_weights)


def kl(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """KL(p || q): covers everything the target may say."""
    entropy = -_total(p * _log(p) - p, log_weights)
    return 1.0 - _total(p * log_q, log_weights) - entropy


def reverse_kl(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """KL(q || p): says nothing that the target wouldn't."""
    q = log_q.exp()
    return _total(q * (log_q - _log(p)), log_weights) + _total(p, log_weights) - 1.0


def jsd(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """Jensen-Shannon divergence, in [0, log 2]; lost mass counts log(2) / 2."""
    q = log_q.exp()
    log_middle = _log((p + q) / 2)
    inside = p * (_log(p) - log_middle) + q * (log_q - log_middle)
    lost = 1.0 - _total(p, log_weights)
    return _total(inside, log_weights) / 2 + lost * (math.log(2) / 2)


def tv(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """Total variation distance, 1 - alpha."""
    return 1.0 - alpha(log_q, p, log_weights)


def log_alpha(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """-log alpha: TV's direction, with steps that grow where acceptance is poor."""
    return -alpha(log_q, p, log_weights).clamp_min(_TINY).log()


def hybrid(log_q: Tensor, p: Tensor, log_weights: Tensor) -> Tensor:
    """(1 - alpha) KL + alpha TV, alpha held fixed: KL while far away, TV once it is close.

    TV's gradient vanishes where q has no mass yet; KL's doesn't, but spends it on tails.
    """
    accepted = alpha(log_q, p, log_weights)
    share = accepted.detach()
    return (1 - share) * kl(log_q, p, log_weights) + share * (1.0 - accepted)


LOSSES: Final[Mapping[str, Loss]] = MappingProxyType(
    {
        "ce": cross_entropy,
        "kl": kl,
        "reverse-kl": reverse_kl,
        "jsd": jsd,
        "tv": tv,
        "log-alpha": log_alpha,
        "hybrid": hybrid,
    }
)


def toward_greedy(p: Tensor, best: Tensor, share: float) -> Tensor:
    """(1 - share) p + share * one-hot of the target's best token.

    At temperature 0 only the best token counts, at 1 all of p; a mixture serves both.

    Args:
        best: (...,) candidate index of the target's best token, -1 where it is no candidate.
    """
    hot = torch.zeros_like(p).scatter_(-1, best.clamp_min(0).unsqueeze(-1), 1.0)
    return (1 - share) * p + share * hot * (best >= 0).unsqueeze(-1)


def masked_mean(values: Tensor, mask: Tensor) -> Tensor:
    """Mean over the positions where ``mask`` is true; 0 if there are none."""
    return (values * mask).sum() / mask.sum().clamp_min(1)


def _total(values: Tensor, log_weights: Tensor) -> Tensor:
    return values @ log_weights.exp()


def _log(p: Tensor) -> Tensor:
    return p.clamp_min(_TINY).log()
