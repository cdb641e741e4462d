"""A distilled draft model: a few of the target's own blocks between its embedding and its head.

Starting from the target's weights is most of the way (cf. DistilBERT, Sanh et al. 1910.01108, and
self-speculation by layer skipping). Shapes as in :mod:`slipstream.training.networks`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from torch import Tensor, nn

from slipstream.drafters.checkpoint_config import Architecture, LayerShape
from slipstream.errors import InvalidInput
from slipstream.training.decoder import Decoder, causal_mask
from slipstream.training.networks import Batch
from slipstream.training.target import FrozenTarget


class DraftNetwork(nn.Module):  # type: ignore[misc]
    """A decoder of its own blocks.

    Args:
        shape: of the blocks.
        hidden_size: the target's.
    """

    architecture: Final[Architecture] = "draft"
    head_count: Final = 0
    rates: Final[Mapping[str, float]] = {}

    def __init__(self, shape: LayerShape, hidden_size: int) -> None:
        super().__init__()
        self.shape: LayerShape | None = shape
        config = shape.model(hidden_size=hidden_size, vocab_size=0)
        self.model = Decoder(config, final_norm=True)

    @classmethod
    def from_target(cls, target: FrozenTarget, layers: Sequence[int]) -> DraftNetwork:
        """Start from these blocks of the target, in this order, and its final norm.

        Raises:
            InvalidInput: no such block, or none at all.
        """
        config = target.config
        for layer in layers:
            if not 0 <= layer < config.num_layers:
                raise InvalidInput(f"the target has no block {layer}; it has {config.num_layers}")
        if not layers:
            raise InvalidInput("a draft model needs at least one block")
        network = cls(LayerShape.of(config, num_layers=len(layers)), config.hidden_size)
        for block, layer in zip(network.model.layers, layers, strict=True):
            block.load_state_dict(target.layer(layer))
        assert network.model.norm is not None
        network.model.norm.load_state_dict(target.layer(-1))
        return network

    def forward(
        self, batch: Batch, embedding: Tensor, depths: int, noise: Tensor | None = None
    ) -> list[Tensor]:
        """See :class:`Network`: it reads tokens alone, so depth changes nothing."""
        x = nn.functional.embedding(batch.tokens, embedding)
        rotation = self.model.rotation(batch.positions)
        hidden, _ = self.model(x, rotation, causal_mask(batch.documents))
        return [hidden] * depths
