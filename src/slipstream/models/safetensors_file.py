"""The safetensors container: a JSON header and raw tensors, mapped into memory, bounds checked.

Format: https://github.com/huggingface/safetensors. Written out here because the library's numpy
side knows no bfloat16 and copies. Promises that a truncated or damaged file is refused with
:class:`CorruptModel` when it is opened.
"""

from __future__ import annotations

import json
import mmap
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import StorageFormat, StoredTensor

_FORMATS: Final[dict[str, tuple[StorageFormat, np.dtype[Any]]]] = {
    "F32": ("f32", np.dtype("<f4")),
    "F16": ("f16", np.dtype("<f2")),
    "BF16": ("bf16", np.dtype("<u2")),
}


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Tensor name -> mapped tensor.

    Raises:
        CorruptModel: no safetensors file, or truncated or damaged.
        UnsupportedModel: a tensor that is not stored as F32, F16 or BF16.
    """
    try:
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    except ValueError:  # mmap refuses an empty file
        raise CorruptModel(f"{path} is empty") from None
    except OSError as error:
        raise CorruptModel(f"{path} can't be read: {error.strerror}") from None
    start = 8 + int.from_bytes(mapped[:8], "little")
    if len(mapped) < start:
        raise CorruptModel(f"{path} ends inside its header")
    try:
        header = json.loads(mapped[8:start])
        entries = [
            (name, entry["dtype"], tuple(entry["shape"]), *entry["data_offsets"])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CorruptModel(f"{path} has no valid safetensors header") from None

    tensors: dict[str, StoredTensor] = {}
    for name, dtype, shape, *offsets in entries:
        if dtype not in _FORMATS:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is stored as {dtype}; read are {', '.join(_FORMATS)}"
            )
        if len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in (*shape, *offsets)):
            raise CorruptModel(f"{path}: the header entry of tensor {name!r} is damaged")
        format, kind = _FORMATS[dtype]
        begin, end = offsets
        if end - begin != prod(shape) * kind.itemsize:
            raise CorruptModel(f"{path}: tensor {name!r} doesn't have the size of its shape")
        if start + end > len(mapped):
            raise CorruptModel(
                f"{path} is truncated: tensor {name!r} ends at byte {start + end}, "
                f"the file at {len(mapped)}"
            )
        data = np.frombuffer(mapped, np.uint8, end - begin, start + begin).view(kind)
        tensors[name] = StoredTensor(format, shape, data.reshape(shape))
    return tensors
