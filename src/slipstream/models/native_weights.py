"""Which packed matrices the compiled core needs of a checkpoint, and how they get into memory.

Query, key and value become one matrix, gate and up another, their rows alternating in panels of
16; heads are padded to 16 numbers each. The plan decides formats and places, ``pack`` fills one
block of memory. Knows nothing of passes and of keys and values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, Unsupported
from slipstream.kernels.packed import Bytes, MatrixShape, PackedFormat, pack_rows
from slipstream.models.catalog import Progress
from slipstream.models.checkpoint import Checkpoint, LlamaConfig, StorageFormat
from slipstream.models.layout import EMBEDDING, LM_HEAD

PANEL, GROUP = 16, 32

QKV = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
OUTPUT, GATE, UP, DOWN = "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"

_KEPT: dict[StorageFormat, PackedFormat] = {"q8_0": "q8", "q4_0": "q4", "q4_1": "q4"}
_ASKED: dict[str, PackedFormat] = {"f32": "f32", "bf16": "bf16", "int8": "q8", "q4": "q4"}

Places = npt.NDArray[np.int64]


@dataclass(frozen=True)
class PackedMatrix:
    """One matrix of the plan.

    Args:
        name: what it is, unique.
        shape: format and size.
        parts: the tensors it consists of, and which output each of their rows becomes.
        offset: first byte in the block of memory.
    """

    name: str
    shape: MatrixShape
    parts: tuple[tuple[str, Places], ...]
    offset: int

    def memory(self, block: Bytes) -> Bytes:
        """This matrix's bytes in the block."""
        return block[self.offset : self.offset + self.shape.bytes]


class WeightPlan:
    """The packed matrices of a model, by name.

    Args:
        checkpoint: where the tensors are.
        weights: ``EngineConfig.weights``. 4-bit weights of our own making leave embedding and head
            at 8 bits, as 4-bit GGUF files do.
        num_layers: blocks that are wanted, from the first one.

    Raises:
        CorruptModel: a tensor is missing or misshapen.
    """

    def __init__(self, checkpoint: Checkpoint, weights: str, num_layers: int) -> None:
        self._checkpoint = checkpoint
        self._weights = weights
        self.matrices: dict[str, PackedMatrix] = {}
        self.bytes = 0
        config = checkpoint.config
        for layer in range(num_layers):
            self._add_block(config, f"model.layers.{layer}.")
        every_token = np.arange(config.vocab_size)
        outer = "int8" if weights == "q4" else weights
        embedding = self._format(EMBEDDING, outer)
        self._add("embedding", embedding, config.vocab_size, [(EMBEDDING, every_token)])
        if not config.tie_embeddings:
            head = self._format(LM_HEAD, outer)
            self._add("head", head, config.vocab_size, [(LM_HEAD, every_token)])

    def _add_block(self, config: LlamaConfig, prefix: str) -> None:
        padded = -(-config.head_dim // PANEL) * PANEL
        counts = (config.num_heads, config.num_kv_heads, config.num_kv_heads)
        formats = [self._format(f"{prefix}{name}.weight") for name in QKV]
        parts, column = [], 0
        for name, heads in zip(QKV, counts, strict=True):
            places = head_places(heads, config.head_dim, padded) + column
            parts.append((f"{prefix}{name}.weight", places))
            column += heads * padded
        if len(set(formats)) == 1:
            self._add(prefix + "qkv", formats[0], column, parts)
        else:  # each in its own format, side by side
            for format, heads, (tensor, places) in zip(formats, counts, parts, strict=True):
                own = [(tensor, places - places[0])]
                self._add(tensor, format, heads * padded, own)

        self._add_plain(prefix + OUTPUT, config.hidden_size)
        inner = -(-config.intermediate_size // GROUP) * GROUP
        index = np.arange(config.intermediate_size)
        gates = index // PANEL * 2 * PANEL + index % PANEL
        gate, up = self._format(f"{prefix}{GATE}.weight"), self._format(f"{prefix}{UP}.weight")
        both = [(f"{prefix}{GATE}.weight", gates), (f"{prefix}{UP}.weight", gates + PANEL)]
        self._add(prefix + "gate_up", gate if gate == up else "bf16", 2 * inner, both)
        self._add_plain(prefix + DOWN, config.hidden_size)

    def _add_plain(self, name: str, rows: int) -> None:
        tensor = f"{name}.weight"
        self._add(name, self._format(tensor), rows, [(tensor, np.arange(rows))])

    def _add(
        self, name: str, format: PackedFormat, rows: int, parts: Sequence[tuple[str, Places]]
    ) -> None:
        cols = self._checkpoint.stored(parts[0][0]).shape[1]
        shape = MatrixShape(format, rows, cols)
        self.matrices[name] = PackedMatrix(name, shape, tuple(parts), self.bytes)
        self.bytes += shape.bytes

    def _format(self, tensor: str, weights: str | None = None) -> PackedFormat:
        weights = weights or self._weights
        stored = self._checkpoint.stored(tensor).format
        if weights == "auto":
            return _KEPT.get(stored, "bf16")
        if weights == "int8" and self._weights == "q4" and stored in ("q4_0", "q4_1"):
            return "q4"  # 4-bit codes in the file gain nothing from 8
        return _ASKED[weights]

    def check_int8(self) -> None:
        """Refuse int8 activations where they can't be used.

        Raises:
            Unsupported: names the first matrix that is neither 8-bit nor 4-bit.
        """
        for matrix in self.matrices.values():
            if matrix.shape.format not in ("q8", "q4"):
                raise Unsupported(
                    f"int8 activations need int8 or 4-bit weights, but {matrix.parts[0][0]} "
                    f"is {matrix.shape.format}; choose weights int8 or q4, or activations bf16"
                )

    def pack(self, block: Bytes, *, threads: int, progress: Progress | None = None) -> None:
        """Fill a zeroed block of ``bytes`` bytes.

        Raises:
            CorruptModel: a tensor holds numbers that are not finite.
        """
        done = 0
        for matrix in self.matrices.values():
            memory = matrix.memory(block)
            for tensor, places in matrix.parts:
                stored = self._checkpoint.stored(tensor)
                bad = pack_rows(
                    matrix.shape, memory, stored.format, stored.data, places, threads=threads
                )
                if bad is not None:
                    raise CorruptModel(
                        f"{self._checkpoint.name}: {tensor} has a number in row {bad} that is not "
                        f"finite, or too large for {matrix.shape.format}"
                    )
            done += matrix.shape.bytes
            if progress is not None:
                progress("packing weights", done, self.bytes)


def head_places(heads: int, head_dim: int, padded: int) -> Places:
    """(heads * head_dim,) place of each head's numbers when heads are padded."""
    return (np.arange(heads)[:, None] * padded + np.arange(head_dim)).reshape(-1)
