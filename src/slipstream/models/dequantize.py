"""Stored numbers to float32: GGUF's groups of 32, bfloat16 and float16, in vectorised numpy.

Layouts: ggml's block_q4_0, block_q4_1 and block_q8_0. A block holds 32 neighbouring numbers of a
row: a float16 scale d (Q4_1: also a float16 minimum m), then the codes. The 16 bytes of a 4-bit
block hold numbers 0-15 in their low and 16-31 in their high halves. Knows no file and no names.
Shape letters: O outputs, B blocks in a row.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slipstream.models.checkpoint import StoredTensor

BLOCK = 32
"""Numbers in a block of any quantised format."""

F32 = npt.NDArray[np.float32]


def dequantize(stored: StoredTensor) -> F32:
    """The tensor as float32 of its logical shape; a new array unless it is stored as float32."""
    data = stored.data
    if stored.format == "f32":
        return np.asarray(data, np.float32)
    if stored.format == "f16":
        return data.astype(np.float32)
    if stored.format == "bf16":  # the upper half of a float32
        return (data.astype(np.uint32) << 16).view(np.float32)
    block_bytes = {"q4_0": 18, "q4_1": 20, "q8_0": 34}[stored.format]
    blocks = np.ascontiguousarray(data).view(np.uint8).reshape(-1, block_bytes)  # (O*B, bytes)
    scale = _float16(blocks[:, :2])
    if stored.format == "q8_0":
        values = blocks[:, 2:].view(np.int8) * scale
    elif stored.format == "q4_0":
        values = (_nibbles(blocks[:, 2:]) - np.float32(8)) * scale
    else:
        values = _nibbles(blocks[:, 4:]) * scale + _float16(blocks[:, 2:4])
    return values.reshape(stored.shape)


def _float16(pairs: npt.NDArray[np.uint8]) -> F32:
    return np.ascontiguousarray(pairs).view("<f2").astype(np.float32)


def _nibbles(packed: npt.NDArray[np.uint8]) -> F32:
    return np.concatenate([packed & 15, packed >> 4], axis=1).astype(np.float32)
