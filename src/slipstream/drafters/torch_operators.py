"""Drafter networks in torch, on the device of a Hugging Face target; written without naming torch.

The small matrices are array-API arithmetic on tensors like the target's own; the blocks are a
transformers model.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from array_api_compat import array_namespace
from array_api_compat import device as device_of

from slipstream.drafters.block_stack import BareBlocks, BlockStack
from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.decoder import ComposedDecoder, Decoder, Linear, SharedWeights, Stack
from slipstream.models.base import IntArray
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.types import Array


class TorchOperators:
    """See :class:`slipstream.drafters.network.Operators` and ``decoder.Parts``.

    Args:
        like: a float32 tensor on the target's device.
    """

    def __init__(self, like: Array) -> None:
        self._xp: Any = array_namespace(like)
        self._device = device_of(like)

    def asarray(self, values: Array) -> Array:
        return self._xp.asarray(values, dtype=self._xp.float32, device=self._device)

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        matrix = self.asarray(dequantize(weight).copy())
        if bias is None:
            return lambda x: x @ matrix.T
        offset = self.asarray(dequantize(bias).copy())
        return lambda x: x @ matrix.T + offset

    def head(self, shared: SharedWeights, ids: IntArray | None) -> Linear:
        return shared.head(ids)

    def decoder(self, checkpoint: DrafterCheckpoint, shared: SharedWeights) -> Decoder:
        return ComposedDecoder(checkpoint, shared, self)

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        from slipstream.models.hf_blocks import model_of

        blocks = BareBlocks(config, tensors, final_norm=final_norm)
        return BlockStack(model_of(blocks, device=self._device), final_norm=final_norm)
