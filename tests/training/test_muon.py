"""Muon's two kinds of step, each against its definition."""

from __future__ import annotations

import pytest
import torch

from slipstream.training.muon import Muon, orthogonal


@pytest.mark.parametrize("shape", [(24, 24), (16, 40), (40, 16)])
def test_a_matrix_becomes_nearly_orthogonal_and_keeps_its_directions(
    shape: tuple[int, int],
) -> None:
    draw = torch.Generator().manual_seed(0)
    u, _ = torch.linalg.qr(torch.randn(shape[0], min(shape), generator=draw))
    v, _ = torch.linalg.qr(torch.randn(shape[1], min(shape), generator=draw))
    found = orthogonal(u @ torch.diag(torch.logspace(0, -1.5, min(shape))) @ v.T)
    inside = u.T @ found @ v  # diagonal in the matrix's own directions
    assert ((inside.diagonal() > 0.6) & (inside.diagonal() < 1.25)).all()
    torch.testing.assert_close(inside, torch.diag(inside.diagonal()), atol=1e-3, rtol=0)


def test_a_gradient_of_zero_moves_nothing() -> None:
    matrix = torch.nn.Parameter(torch.ones(4, 4))
    matrix.grad = torch.zeros(4, 4)
    Muon([matrix], lr=0.1).step()
    assert torch.equal(matrix.detach(), torch.ones(4, 4))


def test_vectors_take_the_steps_of_adamw() -> None:
    draw = torch.Generator().manual_seed(0)
    start = torch.randn(10, generator=draw)
    ours, theirs = (torch.nn.Parameter(start.clone()) for _ in range(2))
    settings = {"lr": 0.01, "betas": (0.9, 0.95), "weight_decay": 0.1}
    optimizers = Muon([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for _ in range(5):
        gradient = torch.randn(10, generator=draw)
        for parameter, optimizer in zip((ours, theirs), optimizers, strict=True):
            parameter.grad = gradient.clone()
            optimizer.step()
    torch.testing.assert_close(ours, theirs)


def test_a_matrix_step_has_the_size_of_adamws() -> None:
    matrix = torch.nn.Parameter(torch.zeros(16, 64))
    matrix.grad = torch.randn(16, 64, generator=torch.Generator().manual_seed(0))
    Muon([matrix], lr=0.1).step()
    size = float(matrix.detach().pow(2).mean().sqrt())
    assert 0.7 * 0.2 < size / 0.1 < 1.2 * 0.2
