"""Losses against their definitions, in float64, and what their gradients lead to."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from slipstream.training.losses import (
    LOSSES,
    alpha,
    hybrid,
    jsd,
    kl,
    log_softmax,
    masked_mean,
    reverse_kl,
    toward_greedy,
    tv,
)

NONE = torch.zeros(7, dtype=torch.float64)


def random_pair(seed: int, lost: float = 0.0) -> tuple[Tensor, Tensor]:
    """(5, 7) logits of q, and p with ``lost`` of its mass outside the candidates."""
    draw = torch.Generator().manual_seed(seed)
    logits, target = torch.randn(2, 5, 7, generator=draw, dtype=torch.float64) * 2
    return logits, torch.softmax(target, -1) * (1 - lost)


def test_each_loss_is_its_definition() -> None:
    logits, p = random_pair(0)
    q = torch.softmax(logits, -1)
    m = (p + q) / 2
    accepted = torch.minimum(p, q).sum(-1)
    forward = (p * (p / q).log()).sum(-1)
    expected = {
        "ce": -(p * q.log()).sum(-1),
        "kl": forward,
        "reverse-kl": (q * (q / p).log()).sum(-1),
        "jsd": ((p * (p / m).log()).sum(-1) + (q * (q / m).log()).sum(-1)) / 2,
        "tv": (p - q).abs().sum(-1) / 2,
        "log-alpha": -accepted.log(),
        "hybrid": (1 - accepted) * forward + accepted * (1 - accepted),
    }
    assert set(expected) == set(LOSSES)
    for name, value in expected.items():
        torch.testing.assert_close(LOSSES[name](log_softmax(logits, NONE), p, NONE), value)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"hybrid"}))
def test_gradients_are_those_of_the_function(name: str) -> None:
    logits, p = random_pair(1, lost=0.1)
    assert torch.autograd.gradcheck(
        lambda x: LOSSES[name](log_softmax(x, NONE), p, NONE), (logits.requires_grad_(),)
    )


def test_hybrid_moves_from_kl_to_tv_as_alpha_rises() -> None:
    logits, p = random_pair(2)
    logits.requires_grad_()
    share = alpha(log_softmax(logits, NONE), p, NONE).detach()

    def gradient(loss: Tensor) -> Tensor:
        return torch.autograd.grad(loss.sum(), logits)[0]

    log_q = log_softmax(logits, NONE)
    mixed = (1 - share[:, None]) * gradient(kl(log_q, p, NONE))
    mixed = mixed + share[:, None] * gradient(tv(log_softmax(logits, NONE), p, NONE))
    torch.testing.assert_close(gradient(hybrid(log_softmax(logits, NONE), p, NONE)), mixed)


@pytest.mark.parametrize("name", sorted(set(LOSSES) - {"ce"}))
def test_every_distance_is_least_where_q_is_p(name: str) -> None:
    logits, p = random_pair(3)
    here = LOSSES[name](p.log(), p, NONE)
    torch.testing.assert_close(here, torch.zeros(5, dtype=torch.float64), atol=1e-9, rtol=0)
    assert (LOSSES[name](log_softmax(logits, NONE), p, NONE) > 1e-3).all()


@pytest.mark.parametrize("name", ["kl", "reverse-kl", "jsd", "tv", "log-alpha", "hybrid"])
def test_mass_outside_the_drafters_vocabulary_is_lost(name: str) -> None:
    _, p = random_pair(4, lost=0.25)
    best = LOSSES[name]((p / 0.75).log(), p, NONE)
    assert (best > 0.02).all()
    if name == "tv":
        torch.testing.assert_close(best, torch.full((5,), 0.25, dtype=torch.float64))


def test_divergences_stay_above_zero_with_lost_mass() -> None:
    for seed in range(20):
        logits, p = random_pair(seed, lost=0.4)
        log_q = log_softmax(logits, NONE)
        for loss in (kl, reverse_kl, jsd):
            assert (loss(log_q, p, NONE) >= 0).all()
        assert (jsd(log_q, p, NONE) <= math.log(2)).all()


def test_a_weight_counts_a_candidate_so_often() -> None:
    """Three equal tokens are one candidate of weight three."""
    logits, p = random_pair(5)
    same = torch.tensor([0, 1, 2, 3, 4, 5, 6, 6, 6])
    wide_logits, wide_p = logits[:, same], p[:, same] / p[:, same].sum(-1, keepdim=True)
    weights = torch.tensor([0, 0, 0, 0, 0, 0, math.log(3)], dtype=torch.float64)
    none = torch.zeros(9, dtype=torch.float64)
    for name, loss in LOSSES.items():
        wide = loss(log_softmax(wide_logits, none), wide_p, none)
        narrow = loss(log_softmax(logits, weights), wide_p[:, :7], weights)
        torch.testing.assert_close(wide, narrow, msg=name)


def test_descent_on_any_loss_raises_alpha() -> None:
    for name, loss in LOSSES.items():
        logits, p = random_pair(6)
        before = alpha(log_softmax(logits, NONE), p, NONE).mean()
        logits.requires_grad_()
        optimizer = torch.optim.Adam([logits], lr=0.1)
        for _ in range(60):
            optimizer.zero_grad()
            loss(log_softmax(logits, NONE), p, NONE).sum().backward()
            optimizer.step()
        after = alpha(log_softmax(logits.detach(), NONE), p, NONE).mean()
        assert after > before + 0.1, name


def test_a_greedy_share_moves_mass_to_the_best_token() -> None:
    _, p = random_pair(7, lost=0.2)
    best = torch.tensor([3, 0, -1, 6, 2])  # the third one's best token is no candidate
    mixed = toward_greedy(p, best, 0.25)
    expected = p * 0.75
    for row in (0, 1, 3, 4):
        expected[row, best[row]] += 0.25
    torch.testing.assert_close(mixed, expected)


def test_nothing_overflows_far_apart() -> None:
    logits = torch.tensor([[200.0, -200.0]], requires_grad=True)
    p = torch.tensor([[0.0, 1.0]])
    none = torch.zeros(2)
    for name, loss in LOSSES.items():
        value = loss(log_softmax(logits, none), p, none)
        (gradient,) = torch.autograd.grad(value.sum(), logits)
        assert value.isfinite().all() and gradient.isfinite().all(), name


def test_a_masked_mean_of_nothing_is_zero() -> None:
    values = torch.tensor([1.0, 2.0, 6.0])
    assert masked_mean(values, torch.tensor([True, False, True])) == 3.5
    assert masked_mean(values, torch.zeros(3, dtype=torch.bool)) == 0
