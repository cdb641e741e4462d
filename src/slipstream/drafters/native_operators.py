"""Drafter networks in the compiled core.

Weights keep the format of their checkpoint (q8_0 as 8 bits, everything else as bf16) unless the
target runs in float32; head and embedding are the target's own, in the target's format. Matrices
run in the core as well, not in numpy, whose own threads would compete with the core's.
R rows, I inputs, O outputs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.drafters.block_stack import BareBlocks, BlockStack
from slipstream.drafters.network import Linear, Stack
from slipstream.kernels.cores import physical_cores
from slipstream.kernels.packed import MatrixShape, PackedFormat, aligned_zeros, pack_rows
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.native import MAX_ROWS, NativeModel
from slipstream.types import Array

F32 = npt.NDArray[np.float32]


class NativeOperators:
    """See :class:`slipstream.drafters.network.Operators`.

    Args:
        config: the target's; threads and, if it is f32, precision are taken over.
    """

    def __init__(self, config: EngineConfig) -> None:
        self._exact = config.weights == "f32"
        weights = "f32" if self._exact else "auto"
        self._config = EngineConfig(weights=weights, threads=config.threads)

    def asarray(self, values: Array) -> F32:
        return np.asarray(values, np.float32)

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        threads = self._config.threads or physical_cores()
        outputs, inputs = weight.shape
        format: PackedFormat = "q8" if weight.format == "q8_0" else "bf16"
        shape = MatrixShape("f32" if self._exact else format, outputs, inputs)
        memory = aligned_zeros(shape.bytes)
        pack_rows(shape, memory, weight.format, weight.data, np.arange(outputs), threads=threads)
        # A head of a stack without blocks is a matrix.
        stack = kernels.native().Stack(
            _without_blocks(inputs, "f32" if self._exact else "bf16"), kernels.isa(), threads
        )
        head = stack.add_head(shape.view(memory), outputs)
        offset = None if bias is None else dequantize(bias)

        def apply(x: F32) -> F32:
            out = np.empty((len(x), outputs), np.float32)
            for start in range(0, len(x), MAX_ROWS):
                part = np.ascontiguousarray(x[start : start + MAX_ROWS])
                stack.apply_head(head, part, False, out[start : start + MAX_ROWS])
            return out if offset is None else out + offset

        return apply

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        blocks = BareBlocks(config, tensors, final_norm=final_norm)
        return BlockStack(NativeModel(blocks, self._config), final_norm=final_norm)


def _without_blocks(inputs: int, activations: str) -> dict[str, object]:
    """The shape of a stack that only has heads; what concerns blocks is the least allowed."""
    return {
        "hidden": inputs,
        "intermediate": 1,
        "heads": 1,
        "kv_heads": 1,
        "head_dim": 2,
        "vocab": 0,
        "max_context": 1,
        "max_rows": MAX_ROWS,
        "eps": 0.0,
        "activations": activations,
        "wide_cache": False,
        "frequencies": [1.0],
    }
