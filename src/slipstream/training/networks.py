"""What the three drafters' networks have in common: a batch in, predicted features out, by depth.

Depth j at position s means: the target's newest token is s - j + 1 positions in, j - 1 tokens were
drafted after it (rightly), and the network now predicts the LM-head input at s, which gives token
s + 1. So one target row p_s judges every depth. Predictions live in feature space for all three
architectures, because all three share the target's LM head. B rows, T positions, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from slipstream.drafters.checkpoint_config import Architecture, LayerShape


@dataclass(frozen=True)
class Batch:
    """Packed conversations.

    Args:
        tokens: (B, T) int64.
        documents: (B, T) int64 which conversation; -1 is padding.
        positions: (B, T) int64 within the conversation.
        features: (B, T, H) float32, the target's.
        learn: (B, T) bool: the next token is one of the answer's, so p is known here.
        temperatures: (B, T) float32 of the conversation.
        top_ids: (B, T, K) int64 the target's best tokens.
        normalisers: (B, T) float32 logsumexp of the target's logits.
    """

    tokens: Tensor
    documents: Tensor
    positions: Tensor
    features: Tensor
    learn: Tensor
    temperatures: Tensor
    top_ids: Tensor
    normalisers: Tensor

    def to(self, device: torch.device) -> Batch:
        """The same elsewhere."""
        return Batch(**{name: value.to(device) for name, value in vars(self).items()})

    def judged(self, depth: int) -> Tensor:
        """(B, T) bool positions at which a prediction of this depth has a p to match."""
        return self.learn & (self.positions >= depth)


class Network(Protocol):
    """A drafter under training; ``state_dict`` has the names of its checkpoint.

    Attributes:
        shape: of its blocks, None if it has none.
        head_count: of a ``medusa``, else 0.
        rates: prefix of parameter names -> factor of the learning rate, 1 where none fits.
    """

    architecture: Architecture
    shape: LayerShape | None
    head_count: int
    rates: Mapping[str, float]

    def __call__(
        self, batch: Batch, embedding: Tensor, depths: int, noise: Tensor | None = None
    ) -> list[Tensor]:
        """Predicted features (B, T, H) for depths 1..depths.

        Args:
            embedding: (V, H) the target's.
            noise: (B, T, H) added to the features that are read, where any are.
        """
        ...

    def state_dict(self) -> Mapping[str, Any]: ...

    def load_state_dict(self, weights: Mapping[str, Any], /) -> Any: ...

    def named_parameters(self) -> Iterator[tuple[str, Any]]: ...


def shifted(values: Tensor, by: int) -> Tensor:
    """(B, T, H) with each position's value moved ``by`` places on; zeros move in."""
    if by == 0:
        return values
    return torch.nn.functional.pad(values, (0, 0, by, 0))[:, : values.shape[1]]
