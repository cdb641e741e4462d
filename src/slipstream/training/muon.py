"""Muon (Jordan 2024; scaled as in Liu et al. 2502.16982): momentum, made orthogonal.

A matrix moves along the nearest orthogonal matrix to its momentum, so that every direction it acts
in learns at the same pace, also those whose gradients are small. That costs a few products of the
matrix with itself per step, whatever the batch, and pays on blocks this small where every token
seen is dear. In float32 throughout: bfloat16, the usual choice, is emulated on most CPUs.

Vectors (norms, biases) take AdamW's steps (Loshchilov & Hutter 1711.05101). A matrix's steps have
the root mean square of AdamW's too, so one learning rate serves both.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch import Tensor

_QUINTIC: Final = (3.4445, -4.7750, 2.0315)
_ITERATIONS: Final = 5
_ADAM_RMS: Final = 0.2
"""What AdamW's steps come to, in units of its learning rate."""
_EPSILON: Final = 1e-8


class Muon(torch.optim.Optimizer):  # type: ignore[misc]
    """See the module.

    Args:
        params: parameters, or groups of them.
        lr: learning rate, on AdamW's scale.
        momentum: of a matrix's gradient, Nesterov's.
        betas: AdamW's, for vectors.
        weight_decay: apart from the gradient.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(
            params,
            {"lr": lr, "momentum": momentum, "betas": betas, "weight_decay": weight_decay},
        )

    @torch.no_grad()  # type: ignore[untyped-decorator]
    def step(self, closure: None = None) -> None:
        """One step of every parameter that has a gradient."""
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is None:
                    continue
                step = self._matrix if parameter.ndim == 2 else self._vector
                parameter.mul_(1 - group["lr"] * group["weight_decay"])
                parameter.sub_(step(parameter.grad, self.state[parameter], group))

    def _matrix(self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        if not state:
            state["momentum"] = torch.zeros_like(gradient)
        momentum = state["momentum"].lerp_(gradient, 1 - group["momentum"])
        ahead = gradient.lerp(momentum, group["momentum"])
        return orthogonal(ahead) * (group["lr"] * _ADAM_RMS * max(gradient.shape) ** 0.5)

    def _vector(self, gradient: Tensor, state: dict[str, Any], group: dict[str, Any]) -> Tensor:
        if not state:
            state["steps"] = torch.zeros(())
            state["mean"], state["square"] = torch.zeros_like(gradient), torch.zeros_like(gradient)
        first, second = group["betas"]
        state["steps"] += 1
        mean = state["mean"].lerp_(gradient, 1 - first) / (1 - first ** state["steps"])
        square = state["square"].lerp_(gradient.square(), 1 - second)
        spread = (square / (1 - second ** state["steps"])).sqrt()
        return group["lr"] * mean / (spread + _EPSILON)


def orthogonal(matrix: Tensor) -> Tensor:
    """Nearly U V^T of a matrix U S V^T, by Newton-Schulz: singular values end up around 1.

    The quintic's coefficients are Jordan's, chosen to lift small singular values fast.
    """
    a, b, c = _QUINTIC
    tall = matrix.shape[0] > matrix.shape[1]
    x = matrix.T if tall else matrix
    x = x / x.norm().clamp_min(1e-20)
    for _ in range(_ITERATIONS):
        square = x @ x.T
        x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x
