"""Float32 to the formats that drafter checkpoints store: the way back of ``models/dequantize.py``.

f16 and bf16 round to nearest, ties to even. q8_0 is ggml's: blocks of 32 neighbours of a row, each
a float16 scale d = max |x| / 127 and 32 codes round(x / d). Knows no file.
"""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidInput
from slipstream.models.checkpoint import StoredTensor
from slipstream.models.dequantize import BLOCK


def store(array: npt.NDArray[Any], format: Literal["f32", "f16", "bf16", "q8_0"]) -> StoredTensor:
    """Round an array to a storage format.

    Raises:
        InvalidInput: q8_0 of something that is no matrix with rows of whole blocks of 32, or of
            numbers that float16 scales can't hold.
    """
    values = np.ascontiguousarray(array, np.float32)
    if format == "f32":
        return StoredTensor("f32", values.shape, values)
    if format == "f16":
        return StoredTensor("f16", values.shape, values.astype(np.float16))
    if format == "bf16":  # the upper half of a float32
        bits = values.view(np.uint32)
        rounded = (bits + np.uint32(0x7FFF) + ((bits >> 16) & np.uint32(1))) >> 16
        return StoredTensor("bf16", values.shape, rounded.astype(np.uint16))
    return StoredTensor("q8_0", values.shape, _q8_0(values))


def _q8_0(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint8]:
    if values.ndim != 2 or values.shape[1] % BLOCK:
        raise InvalidInput(
            f"q8_0 takes matrices with rows of a multiple of {BLOCK}, not {values.shape}"
        )
    blocks = values.reshape(-1, BLOCK)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    if not (largest < 127 * float(np.finfo(np.float16).max)).all():
        raise InvalidInput("q8_0 takes finite numbers below 8.3e6")
    scale = (largest / 127).astype("<f2")
    divisor = np.where(scale > 0, scale, 1).astype(np.float32)
    codes = np.clip(np.rint(blocks / divisor), -127, 127).astype(np.int8)
    packed = np.concatenate([scale.view(np.uint8), codes.view(np.uint8)], axis=1)
    return packed.reshape(values.shape[0], -1)
