"""Packed matrices in numpy memory: sizes, aligned buffers, and packing from stored rows.

The layout itself is described in ``csrc/layout.h``. Knows no model: rows come as a checkpoint
stores them, with the places they take in the packed matrix, which is how matrices are fused.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from slipstream.kernels import native

PackedFormat: TypeAlias = Literal["f32", "bf16", "q8", "q4"]

Bytes: TypeAlias = npt.NDArray[np.uint8]

ALIGNMENT = 64
"""Bytes; a cache line and an AVX-512 vector."""

LAYOUT_VERSION = 1
"""Changes whenever packed bytes change their meaning; the same for all instruction sets."""


@dataclass(frozen=True)
class MatrixShape:
    """A matrix to be packed: (rows outputs, cols inputs), before padding."""

    format: PackedFormat
    rows: int
    cols: int

    @property
    def bytes(self) -> int:
        """Size when packed, a multiple of 64."""
        return int(native().packed_bytes(self.format, self.rows, self.cols))

    def view(self, memory: Bytes) -> Any:
        """The extension's handle of this matrix in packed memory, which it keeps alive."""
        return native().Packed(self.format, self.rows, self.cols, memory)


def aligned_zeros(size: int) -> Bytes:
    """(size,) zero bytes, aligned to ``ALIGNMENT``."""
    memory = np.zeros(size + ALIGNMENT, np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + size]


def pack_rows(
    shape: MatrixShape,
    memory: Bytes,
    stored_format: str,
    stored: npt.NDArray[np.generic],
    places: npt.NDArray[np.int64],
    *,
    threads: int = 1,
) -> int | None:
    """Pack stored rows into zeroed memory of ``shape``.

    Args:
        stored: (rows, ...) in ``stored_format``, one row per output.
        places: (rows,) the output that each row becomes.

    Returns:
        The first row with a number that is not finite or overflows the format; None if all is
        well.
    """
    rows = np.ascontiguousarray(stored).reshape(len(stored), -1).view(np.uint8)
    bad = native().pack(
        stored_format, rows, shape.cols, shape.format, shape.rows, memory, places, threads
    )
    return None if bad < 0 else int(bad)


def repack(matrix: Any, ids: npt.NDArray[np.int64], shape: MatrixShape, *, threads: int = 1) -> Any:
    """Some rows of a packed matrix as a matrix of their own.

    Args:
        matrix: the extension's handle of a matrix of ``shape.cols`` inputs.
        ids: (shape.rows,) which of its outputs.
        shape: of the new matrix; its format may differ, which rounds.

    Returns:
        The handle of the new one.
    """
    memory = aligned_zeros(shape.bytes)
    native().repack(matrix, np.ascontiguousarray(ids), shape.format, memory, threads)
    return shape.view(memory)
