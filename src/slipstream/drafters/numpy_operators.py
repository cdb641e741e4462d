"""Drafter networks in numpy: the readable reference, and the fallback for every target."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from slipstream.drafters.block_stack import BareBlocks, BlockStack
from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.decoder import ComposedDecoder, Decoder, Linear, SharedWeights, Stack
from slipstream.models.base import IntArray
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.reference import ReferenceModel
from slipstream.types import Array


class NumpyOperators:
    """See :class:`slipstream.drafters.network.Operators` and ``decoder.Parts``."""

    def asarray(self, values: Array) -> npt.NDArray[np.float32]:
        if hasattr(values, "cpu"):  # a torch tensor, on whatever device
            values = values.detach().cpu()
        return np.asarray(values, np.float32)

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        matrix = dequantize(weight)
        if bias is None:
            return lambda x: x @ matrix.T
        offset = dequantize(bias)
        return lambda x: x @ matrix.T + offset

    def head(self, shared: SharedWeights, ids: IntArray | None) -> Linear:
        return shared.head(ids)

    def decoder(self, checkpoint: DrafterCheckpoint, shared: SharedWeights) -> Decoder:
        return ComposedDecoder(checkpoint, shared, self)

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        blocks = BareBlocks(config, tensors, final_norm=final_norm)
        return BlockStack(ReferenceModel(blocks), final_norm=final_norm)
