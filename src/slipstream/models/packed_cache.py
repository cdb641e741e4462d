"""Packed weights on disk, memory-mapped the next time: a start takes milliseconds, not seconds.

A file is named after what it holds: the checkpoint's fingerprint and a digest of the packed layout
(formats, shapes, layout version). It begins with a header that carries its own digest and one of
samples of the weights; a file that doesn't match is packed anew. Files appear whole or not at all.
Knows nothing of models beyond the plan's bytes.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from slipstream.kernels.packed import LAYOUT_VERSION, Bytes, aligned_zeros
from slipstream.models.catalog import cache_directory
from slipstream.models.native_weights import WeightPlan

HEADER: Final = 4096
"""Bytes before the weights: a page, so that they are aligned."""

SMALLEST: Final = 16 * 2**20
"""Fewer bytes are packed faster than a file is worth."""

_MAGIC: Final = b"slipstream packed weights\n"
_SAMPLES, _SAMPLE_BYTES = 256, 64


def load_or_pack(plan: WeightPlan, fingerprint: str, pack: Callable[[Bytes], None]) -> Bytes:
    """The plan's block of packed weights: mapped from the cache, or packed and kept there.

    Args:
        fingerprint: of the checkpoint; empty for one that should not be cached.
        pack: fills a zeroed block.

    Returns:
        (plan.bytes,) uint8, aligned to 64 bytes; read-only if mapped.
    """
    if not fingerprint or plan.bytes < SMALLEST:
        return _packed(plan, pack)
    path = cache_file(plan, fingerprint)
    block = _mapped(path, plan.bytes)
    if block is None:
        block = _packed(plan, pack)
        with contextlib.suppress(OSError):  # a full or read-only disk costs time, nothing else
            _write(path, block)
    return block


def cache_file(plan: WeightPlan, fingerprint: str) -> Path:
    """Where the packed weights of a checkpoint lie, if they have been kept."""
    layout = hashlib.sha256(f"{LAYOUT_VERSION} {fingerprint}".encode())
    for matrix in plan.matrices.values():
        shape = matrix.shape
        layout.update(f"{matrix.name} {shape.format} {shape.rows} {shape.cols}".encode())
    name = f"{fingerprint}-{layout.hexdigest()[:16]}.weights"
    return cache_directory() / "packed" / name


def _packed(plan: WeightPlan, pack: Callable[[Bytes], None]) -> Bytes:
    block = aligned_zeros(plan.bytes)
    pack(block)
    return block


def _mapped(path: Path, size: int) -> Bytes | None:
    try:
        if path.stat().st_size != HEADER + size:
            return None
        with path.open("rb") as file:
            header = file.read(HEADER)
        block: Bytes = np.memmap(path, np.uint8, "r", offset=HEADER, shape=(size,))
    except OSError:
        return None
    return block if header == _header(path.name, block) else None


def _write(path: Path, block: Bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".partial")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(_header(path.name, block))
            file.write(block.data)
        os.replace(name, path)
    except OSError:
        Path(name).unlink(missing_ok=True)
        raise


def _header(name: str, block: Bytes) -> bytes:
    samples = hashlib.sha256()
    last = max(0, len(block) - _SAMPLE_BYTES)
    for sample in range(_SAMPLES):
        start = last * sample // (_SAMPLES - 1)
        samples.update(block[start : start + _SAMPLE_BYTES].tobytes())
    text = _MAGIC + f"{name} {len(block)} {samples.hexdigest()}\n".encode()
    return (text + hashlib.sha256(text).hexdigest().encode()).ljust(HEADER, b"\0")
