"""Drafter networks in the compiled core, one call a level.

A drafter only guesses, so its weights and activations are as small as the core has kernels for:
:data:`BLOCKS`, :data:`HEAD`, int8 activations. What is drawn is drawn from the logits that come
out, and its receipt says so: exactness does not hang on them. Beside a float32 target everything
is float32. Matrices run in the core as well, not in numpy, whose own threads would compete with the
core's. R rows, L rows that want logits, I inputs, O outputs, H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.drafters.block_stack import BareBlocks
from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.decoder import FUSION, FUSION_BIAS, Decoder, Linear, SharedWeights
from slipstream.errors import CorruptModel, InvalidInput
from slipstream.kernels.cores import physical_cores
from slipstream.kernels.packed import MatrixShape, PackedFormat, aligned_zeros, pack_rows, repack
from slipstream.models.base import ForwardOutput, IntArray, Rows
from slipstream.models.checkpoint import StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.layout import FINAL_NORM
from slipstream.models.native import MAX_ROWS, NativeModel, add_blocks, stack_shape, vector
from slipstream.models.native_weights import WeightPlan
from slipstream.models.row_passes import in_passes
from slipstream.types import Array

F32 = npt.NDArray[np.float32]

BLOCKS: Final[PackedFormat] = "q8"
"""Of a drafter's own matrices."""

HEAD: Final[PackedFormat] = "q4"
"""Of its copy of the target's LM head."""

_ASKED: Final = {"f32": "f32", "q8": "int8", "q4": "q4"}  # words of EngineConfig.weights


class NativeOperators:
    """See :class:`slipstream.drafters.network.Operators`.

    Args:
        config: the target's; threads and, if it is f32, precision are taken over.
    """

    def __init__(self, config: EngineConfig) -> None:
        exact = config.weights == "f32"
        self.activations = "f32" if exact else "int8"
        self.blocks: PackedFormat = "f32" if exact else BLOCKS
        self.head_format: PackedFormat = "f32" if exact else HEAD
        self.threads = config.threads or physical_cores()

    def asarray(self, values: Array) -> F32:
        return np.asarray(values, np.float32)

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        return self._apply(self.packed(weight), weight.shape[0], weight.shape[1], bias)

    def head(self, shared: SharedWeights, ids: IntArray | None) -> Linear:
        assert isinstance(shared, NativeModel)
        width = shared.info.vocab_size if ids is None else len(ids)
        return self._apply(self.packed_head(shared, ids), width, shared.info.hidden_size, None)

    def decoder(self, checkpoint: DrafterCheckpoint, shared: SharedWeights) -> Decoder:
        assert isinstance(shared, NativeModel)
        return NativeDecoder(checkpoint, shared, self)

    def packed(self, weight: StoredTensor) -> Any:
        """A drafter's own matrix in the core's memory.

        Raises:
            CorruptModel: a number that is not finite.
        """
        outputs, inputs = weight.shape
        shape = MatrixShape(self.blocks, outputs, inputs)
        memory = aligned_zeros(shape.bytes)
        places = np.arange(outputs)
        bad = pack_rows(shape, memory, weight.format, weight.data, places, threads=self.threads)
        if bad is not None:
            raise CorruptModel(f"the drafter has a number in row {bad} that is not finite")
        return shape.view(memory)

    def packed_head(self, shared: NativeModel, ids: IntArray | None) -> Any:
        """The target's LM head, of these tokens or of all."""
        lent = shared.lent
        if ids is None and lent.head_format == self.head_format:
            return lent.head
        ids = np.arange(shared.info.vocab_size) if ids is None else np.asarray(ids, np.int64)
        shape = MatrixShape(self.head_format, len(ids), shared.info.hidden_size)
        return repack(lent.head, ids, shape, threads=self.threads)

    def _apply(self, matrix: Any, outputs: int, inputs: int, bias: StoredTensor | None) -> Linear:
        # A head of a stack without blocks is a matrix.
        stack = kernels.native().Stack(
            _without_blocks(inputs, self.activations), kernels.isa(), self.threads
        )
        head = stack.add_head(matrix, outputs)
        offset = None if bias is None else dequantize(bias)

        def apply(x: F32) -> F32:
            out = np.empty((len(x), outputs), np.float32)
            for start in range(0, len(x), MAX_ROWS):
                part = np.ascontiguousarray(x[start : start + MAX_ROWS])
                stack.apply_head(head, part, False, out[start : start + MAX_ROWS])
            return out if offset is None else out + offset

        return apply


class NativeDecoder:
    """See :class:`slipstream.drafters.decoder.Decoder`; the core itself checks every call."""

    def __init__(
        self, checkpoint: DrafterCheckpoint, shared: NativeModel, operators: NativeOperators
    ) -> None:
        layers = checkpoint.config.layers
        assert layers is not None
        self._fused, normed = FUSION in checkpoint, FINAL_NORM in checkpoint
        self._hidden = shared.info.hidden_size
        config = layers.model(hidden_size=self._hidden, vocab_size=shared.info.vocab_size)
        self._stack = kernels.native().Stack(
            stack_shape(config, operators.activations), kernels.isa(), operators.threads
        )
        blocks = BareBlocks(config, checkpoint.stored, final_norm=normed)
        plan = WeightPlan(blocks, _ASKED[operators.blocks], config.num_layers)
        memory = aligned_zeros(plan.bytes)
        plan.pack(memory, threads=operators.threads)
        add_blocks(self._stack, plan, memory, blocks, config.num_layers)
        if normed:
            self._stack.set_final_norm(vector(blocks, FINAL_NORM))
        self._stack.set_embedding(shared.lent.embedding)
        if self._fused:
            bias = checkpoint.tensor(FUSION_BIAS) if FUSION_BIAS in checkpoint else None
            self._stack.set_fusion(operators.packed(checkpoint.stored(FUSION)), bias)
        ids = checkpoint.vocabulary
        self._width = shared.info.vocab_size if ids is None else len(ids)
        self._head = self._stack.add_head(operators.packed_head(shared, ids), self._width)
        self.open = self._stack.open
        self.close = self._stack.close
        self.length = self._stack.committed

    def forward(self, rows: Rows) -> ForwardOutput:
        return in_passes(rows, MAX_ROWS, self._pass)

    def _pass(self, rows: Rows) -> ForwardOutput:
        count = len(rows)
        wants = rows.wants_logits
        wanted = list(range(count)) if wants is None else np.flatnonzero(wants).tolist()
        logits = np.empty((len(wanted), self._width), np.float32)
        features = np.empty((count, self._hidden), np.float32)
        try:
            self._stack.forward(
                rows.sequences.tolist(),
                rows.parents.tolist(),
                rows.tokens.tolist(),
                np.ascontiguousarray(rows.vectors, np.float32) if self._fused else None,
                wanted,
                self._head,
                logits if wanted else None,
                features,
                [],
            )
        except ValueError as error:
            raise InvalidInput(str(error)) from None
        return ForwardOutput(logits=logits, features=features)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        try:
            self._stack.commit(sequence, list(path))
        except ValueError as error:
            raise InvalidInput(str(error)) from None

    def truncate(self, sequence: int, length: int) -> None:
        try:
            self._stack.truncate(sequence, length)
        except ValueError as error:
            raise InvalidInput(str(error)) from None


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
