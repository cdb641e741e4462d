"""Random rows in every stored format, with the float32 numbers they stand for."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slipstream.models.checkpoint import StorageFormat, StoredTensor
from slipstream.models.dequantize import dequantize

FORMATS: tuple[StorageFormat, ...] = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1")


def stored_rows(
    format: StorageFormat, rows: int, cols: int, seed: int = 0
) -> tuple[StoredTensor, npt.NDArray[np.float32]]:
    """A (rows, cols) tensor and its values."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal((rows, cols)).astype(np.float32)
    data: npt.NDArray[np.generic]
    if format == "f32":
        data = values
    elif format == "f16":
        data = values.astype(np.float16)
        data.flat[0] = 3e-8  # subnormal
    elif format == "bf16":
        data = (values.view(np.uint32) >> 16).astype(np.uint16)
    else:
        groups = rows * cols // 32
        scale = rng.uniform(0.001, 0.1, groups).astype(np.float16)
        low = rng.uniform(-1, 0, groups).astype(np.float16)
        width = 32 if format == "q8_0" else 16
        codes = rng.integers(0, 256, (groups, width)).astype(np.uint8)
        parts = [scale.view(np.uint8).reshape(-1, 2)]
        if format == "q4_1":
            parts.append(low.view(np.uint8).reshape(-1, 2))
        data = np.concatenate([*parts, codes], axis=1).reshape(rows, -1)
    tensor = StoredTensor(format, (rows, cols), data)
    return tensor, dequantize(tensor)
