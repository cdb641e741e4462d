"""Medusa-1 heads (Cai et al. 2401.10774): from one feature, a guess at each of the next tokens.

Head i predicts the token i + 2 places after the feature's own, as LMhead(h + SiLU(W_i h + b_i)).
The target stays frozen. Zero weights are the identity: each head starts as the target's own view of
the next token. Shapes as in :mod:`slipstream.training.networks`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor, nn

from slipstream.drafters.checkpoint_config import Architecture
from slipstream.training.networks import Batch, shifted


class _Head(nn.Module):  # type: ignore[misc]
    def __init__(self, hidden_size: int) -> None:
        super().__init__()
        self.linear = nn.Linear(hidden_size, hidden_size)
        nn.init.zeros_(self.linear.weight)
        nn.init.zeros_(self.linear.bias)

    def forward(self, h: Tensor) -> Tensor:
        return h + nn.functional.silu(self.linear(h))


class MedusaNetwork(nn.Module):  # type: ignore[misc]
    """The heads alone.

    Args:
        heads: how many tokens ahead.
        hidden_size: the target's.
    """

    architecture: Final[Architecture] = "medusa"
    shape: Final = None
    rates: Final[Mapping[str, float]] = {}

    def __init__(self, heads: int, hidden_size: int) -> None:
        super().__init__()
        self.head_count = heads
        self.heads = nn.ModuleList(_Head(hidden_size) for _ in range(heads))

    def forward(
        self, batch: Batch, embedding: Tensor, depths: int, noise: Tensor | None = None
    ) -> list[Tensor]:
        """See :class:`Network`: depth j at s is head j - 1 on the feature at s - j."""
        h = batch.features if noise is None else batch.features + noise
        return [shifted(self.heads[i](h), i + 1) for i in range(min(depths, self.head_count))]
