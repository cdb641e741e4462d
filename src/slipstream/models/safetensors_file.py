"""The safetensors container: a JSON header and raw tensors, mapped into memory, bounds checked.

Format: https://github.com/huggingface/safetensors. Written out here because the library's numpy
side knows no bfloat16 and copies. Promises that a truncated or damaged file is refused with
:class:`CorruptModel` when it is opened.
"""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import StorageFormat, StoredTensor

_FORMATS: Final[dict[str, StorageFormat]] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),
    "I32": np.dtype("<i4"),
    "U8": np.dtype("u1"),
}


@dataclass(frozen=True)
class Container:
    """What a file holds.

    Args:
        arrays: tensor name -> (the file's word for its numbers, mapped array); BF16 as uint16.
        metadata: strings that were stored along.
    """

    arrays: Mapping[str, tuple[str, npt.NDArray[Any]]]
    metadata: Mapping[str, str]


def read_safetensors(path: Path) -> dict[str, StoredTensor]:
    """Tensor name -> mapped tensor.

    Raises:
        CorruptModel: no safetensors file, or truncated or damaged.
        UnsupportedModel: a tensor that is not stored as F32, F16 or BF16.
    """
    tensors: dict[str, StoredTensor] = {}
    for name, (dtype, array) in read_container(path).arrays.items():
        if dtype not in _FORMATS:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is stored as {dtype}; read are {', '.join(_FORMATS)}"
            )
        tensors[name] = StoredTensor(_FORMATS[dtype], array.shape, array)
    return tensors


def read_container(path: Path) -> Container:
    """Everything in a file, as it is stored.

    Raises:
        CorruptModel: no safetensors file, or truncated or damaged.
        UnsupportedModel: a tensor of numbers other than F32, F16, BF16, I32 or U8.
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
            (name, str(entry["dtype"]), tuple(entry["shape"]), *entry["data_offsets"])
            for name, entry in header.items()
            if name != "__metadata__"
        ]
        metadata = dict(header.get("__metadata__") or {})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        raise CorruptModel(f"{path} has no valid safetensors header") from None

    arrays: dict[str, tuple[str, npt.NDArray[Any]]] = {}
    for name, dtype, shape, *offsets in entries:
        if dtype not in _DTYPES:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is stored as {dtype}; read are {', '.join(_DTYPES)}"
            )
        if len(offsets) != 2 or not all(type(n) is int and n >= 0 for n in (*shape, *offsets)):
            raise CorruptModel(f"{path}: the header entry of tensor {name!r} is damaged")
        kind = _DTYPES[dtype]
        begin, end = offsets
        if end - begin != prod(shape) * kind.itemsize:
            raise CorruptModel(f"{path}: tensor {name!r} doesn't have the size of its shape")
        if start + end > len(mapped):
            raise CorruptModel(
                f"{path} is truncated: tensor {name!r} ends at byte {start + end}, "
                f"the file at {len(mapped)}"
            )
        data = np.frombuffer(mapped, np.uint8, end - begin, start + begin).view(kind)
        arrays[name] = (dtype, data.reshape(shape))
    return Container(arrays, metadata)


def write_container(path: Path, container: Container) -> None:
    """Write a file that :func:`read_container` reads back; it is on disk on return.

    Raises:
        OSError: the disk is full or not writable.
    """
    header: dict[str, Any] = {"__metadata__": dict(container.metadata)}
    end = 0
    for name, (dtype, array) in container.arrays.items():
        assert array.dtype == _DTYPES[dtype]
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": dtype, "shape": array.shape, "data_offsets": (begin, end)}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)  # tensors start aligned
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _, array in container.arrays.values():
            file.write(np.ascontiguousarray(array).data)
        file.flush()
        os.fsync(file.fileno())
