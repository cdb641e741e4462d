"""The frozen part of a drafter: the target's embedding and LM head, and layers to start from.

Read from a checkpoint at rest, GGUF or Hugging Face, de-quantised. H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch

from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.models.checkpoint import Checkpoint, LlamaConfig
from slipstream.models.layout import EMBEDDING, FINAL_NORM, LM_HEAD


@dataclass(frozen=True)
class FrozenTarget:
    """What training needs of a target.

    Args:
        identity: whom the drafter will belong to.
        embedding: (V, H) float32.
        head: (V, H) float32; the embedding itself if they are tied.
        config: shape of its blocks.
        layer: the tensors of a block by name without prefix, or FINAL_NORM's with index -1.
    """

    identity: TargetIdentity
    embedding: torch.Tensor
    head: torch.Tensor
    config: LlamaConfig
    layer: Callable[[int], Mapping[str, torch.Tensor]]

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint) -> FrozenTarget:
        """Of a model at rest."""
        config = checkpoint.config
        embedding = torch.from_numpy(checkpoint.tensor(EMBEDDING).copy())
        head = embedding
        if not config.tie_embeddings:
            head = torch.from_numpy(checkpoint.tensor(LM_HEAD).copy())

        def layer(index: int) -> Mapping[str, torch.Tensor]:
            prefix = f"model.layers.{index}." if index >= 0 else FINAL_NORM.removesuffix("weight")
            return {
                name.removeprefix(prefix): torch.from_numpy(checkpoint.tensor(name).copy())
                for name in checkpoint.names()
                if name.startswith(prefix)
            }

        identity = TargetIdentity(
            name=checkpoint.name,
            fingerprint=checkpoint.fingerprint,
            tokenizer_fingerprint=checkpoint.tokenizer.fingerprint,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
        )
        return cls(identity, embedding, head, config, layer)
