"""Drafter networks in the compiled core: blocks there, the few small matrices in numpy.

Blocks keep the format of their checkpoint (q8_0 as 8 bits, everything else as bf16); head and
embedding are the target's own, in the target's format.
"""

from __future__ import annotations

from collections.abc import Callable

from slipstream.config import EngineConfig
from slipstream.drafters.block_stack import BareBlocks, BlockStack
from slipstream.drafters.network import Stack
from slipstream.drafters.numpy_operators import NumpyOperators
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.native import NativeModel


class NativeOperators(NumpyOperators):
    """See :class:`slipstream.drafters.network.Operators`.

    Args:
        config: the target's; threads and, if it is f32, precision are taken over.
    """

    def __init__(self, config: EngineConfig) -> None:
        weights = "f32" if config.weights == "f32" else "auto"
        self._config = EngineConfig(weights=weights, threads=config.threads)

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        blocks = BareBlocks(config, tensors, final_norm=final_norm)
        return BlockStack(NativeModel(blocks, self._config), final_norm=final_norm)
