"""EAGLE (Li et al. 2401.15077): autoregression over features, trained on its own errors.

A position reads the embedding of its own token and the feature of the position before, both through
``fc``, and predicts its own feature. Deeper predictions read the previous pass's prediction in
place of the true feature and see it in the attention, exactly as drafting does (training-time test:
HASS 2408.15766, EAGLE-3 2503.01840).

The start is linear: ``fc`` is the ridge regression of the next feature on [embedding, feature] over
some of the data, and the block, random, adds nothing yet because its output projections are zero.
The target's own last block would not do: its inner activations are so large that the first steps on
zero projections throw the fit away. Shapes as in :mod:`slipstream.training.networks`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import torch
from torch import Tensor, nn

from slipstream.drafters.checkpoint_config import Architecture, LayerShape
from slipstream.training.decoder import Decoder, KeysValues, rollout_mask
from slipstream.training.networks import Batch, shifted
from slipstream.training.target import FrozenTarget


class EagleNetwork(nn.Module):  # type: ignore[misc]
    """``fc`` and the blocks behind it.

    Args:
        shape: of the blocks.
        hidden_size: the target's.
    """

    architecture: Final[Architecture] = "eagle"
    head_count: Final = 0
    rates: Final[Mapping[str, float]] = {"fc.": 0.1}

    def __init__(self, shape: LayerShape, hidden_size: int) -> None:
        super().__init__()
        self.shape: LayerShape | None = shape
        config = shape.model(hidden_size=hidden_size, vocab_size=0)
        self.fc = nn.Linear(2 * hidden_size, hidden_size, bias=True)
        self.model = Decoder(config, final_norm=False)

    @classmethod
    def from_target(
        cls, target: FrozenTarget, batches: Iterable[Batch], *, layers: int = 1, seed: int = 0
    ) -> EagleNetwork:
        """Blocks shaped like the target's, silent at first, behind a fit of the next feature.

        Args:
            batches: text for the fit.
            seed: of the blocks.
        """
        config = target.config
        network = cls(LayerShape.of(config, num_layers=layers), config.hidden_size)
        draw = torch.Generator().manual_seed(seed)
        for name, parameter in network.model.named_parameters():
            if parameter.ndim == 1:
                nn.init.constant_(parameter, 1.0 if name.endswith("norm.weight") else 0.0)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                nn.init.zeros_(parameter)
            else:
                nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5, generator=draw)
        weight, bias = linear_fit(batches, target.embedding)
        with torch.no_grad():
            network.fc.weight.copy_(weight)
            network.fc.bias.copy_(bias)
        return network

    def forward(
        self, batch: Batch, embedding: Tensor, depths: int, noise: Tensor | None = None
    ) -> list[Tensor]:
        """See :class:`Network`; one pass over all positions per depth."""
        embedded = nn.functional.embedding(batch.tokens, embedding)
        rotation = self.model.rotation(batch.positions)
        usable = batch.positions > 0  # a conversation's first token has no feature before it
        read = batch.features if noise is None else batch.features + noise
        past: list[list[KeysValues]] = []
        predictions: list[Tensor] = []
        for depth in range(1, depths + 1):
            before = shifted(read, 1) * usable.unsqueeze(-1)
            x = self.fc(torch.cat([embedded, before], dim=-1))
            mask = rollout_mask(batch.documents, usable, depth)
            read, own = self.model(x, rotation, mask, past)
            past.append(own)
            predictions.append(read)
        return predictions


def linear_fit(
    batches: Iterable[Batch], embedding: Tensor, ridge: float = 1e-3
) -> tuple[Tensor, Tensor]:
    """Least squares of a position's feature on [its embedding, the feature before].

    Returns:
        (H, 2H) weight and (H,) bias, in float32.
    """
    hidden = embedding.shape[1]
    gram = torch.zeros(2 * hidden + 1, 2 * hidden + 1, dtype=torch.float64)
    cross = torch.zeros(2 * hidden + 1, hidden, dtype=torch.float64)
    for batch in batches:
        inside = (batch.documents >= 0) & (batch.positions > 0) & batch.learn
        embedded = embedding[batch.tokens[inside]]
        before, here = shifted(batch.features, 1)[inside], batch.features[inside]
        x = torch.cat([embedded, before, torch.ones(len(here), 1)], dim=-1)
        gram += (x.T @ x).double()
        cross += (x.T @ here).double()
    gram += torch.diag(gram.diagonal() * ridge + 1e-9)
    solution = torch.linalg.solve(gram, cross).float()
    return solution[:-1].T.contiguous(), solution[-1].contiguous()
