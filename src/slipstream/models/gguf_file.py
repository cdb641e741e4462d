"""The GGUF container: metadata and a table of tensors, mapped into memory, every bound checked.

Format: the GGUF specification of ggml (versions 2 and 3, little-endian). Knows nothing of models,
tensor names or tokenizers. Promises that a truncated or damaged file is refused with
:class:`CorruptModel` when it is opened, never later and never with another exception. The reference
reader of the ``gguf`` package wraps each of 100,000 vocabulary entries in arrays and takes seconds
for what takes a tenth of one here.
"""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import StorageFormat

_SCALARS: Final = {
    0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d",
}  # fmt: skip
_STRING, _ARRAY = 8, 9

_FORMATS: Final[dict[int, tuple[StorageFormat, int, int]]] = {
    0: ("f32", 1, 4),
    1: ("f16", 1, 2),
    2: ("q4_0", 32, 18),
    3: ("q4_1", 32, 20),
    8: ("q8_0", 32, 34),
    30: ("bf16", 1, 2),
}
"""ggml type -> (our name, numbers per block, bytes per block)."""

_DTYPES: Final[dict[str, np.dtype[Any]]] = {
    "f32": np.dtype("<f4"),
    "f16": np.dtype("<f2"),
    "bf16": np.dtype("<u2"),
}

_OTHER_TYPES: Final = {
    6: "Q5_0", 7: "Q5_1", 9: "Q8_1", 10: "Q2_K", 11: "Q3_K", 12: "Q4_K", 13: "Q5_K", 14: "Q6_K",
    15: "Q8_K", 16: "IQ2_XXS", 17: "IQ2_XS", 18: "IQ3_XXS", 19: "IQ1_S", 20: "IQ4_NL", 21: "IQ3_S",
    22: "IQ2_S", 23: "IQ4_XS", 24: "I8", 25: "I16", 26: "I32", 27: "I64", 28: "F64", 29: "IQ1_M",
    34: "TQ1_0", 35: "TQ2_0", 39: "MXFP4", 40: "NVFP4",
}  # fmt: skip


@dataclass(frozen=True)
class GGUFTensor:
    """One entry of the tensor table.

    Args:
        format: how its numbers are stored.
        shape: logical shape, slowest axis first: (outputs, inputs) for matrices.
        data: mapped view; of ``shape``, or (outputs, bytes per row) uint8 for quantised formats.
    """

    format: StorageFormat
    shape: tuple[int, ...]
    data: npt.NDArray[np.generic]


class GGUFFile:
    """A GGUF file, mapped read-only.

    Raises:
        CorruptModel: no GGUF file, or truncated or damaged.
        UnsupportedModel: a version, byte order or tensor type that isn't read here.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.metadata: dict[str, Any] = {}
        self.tensors: dict[str, GGUFTensor] = {}
        self._offset = 0
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # mmap refuses an empty file
            raise CorruptModel(f"{path} is empty") from None
        except OSError as error:
            raise CorruptModel(f"{path} can't be read: {error.strerror}") from None
        self._size = len(self._map)

        if self._map[:4] != b"GGUF":
            raise CorruptModel(f"{path} is no GGUF file: it doesn't start with the bytes 'GGUF'")
        self._offset = 4
        version = self._number("I")
        if version & 0xFFFF == 0:
            raise UnsupportedModel(f"{path} is a big-endian GGUF file; only little-endian is read")
        if version not in (2, 3):
            raise UnsupportedModel(f"{path} is GGUF version {version}; versions 2 and 3 are read")
        tensor_count, entry_count = self._number("Q"), self._number("Q")
        for _ in range(entry_count):
            key = self._string()
            if key in self.metadata:
                raise self._corrupt(f"metadata key {key!r} occurs twice")
            self.metadata[key] = self._value(self._number("I"), key)
        self._read_tensors(tensor_count)

    def _read_tensors(self, count: int) -> None:
        table: list[tuple[str, tuple[int, ...], int, int]] = []
        for _ in range(count):
            name = self._string()
            dims = self._number("I")
            if not 1 <= dims <= 4:
                raise self._corrupt(f"tensor {name!r} has {dims} dimensions")
            shape = tuple(self._number("Q") for _ in range(dims))[::-1]
            table.append((name, shape, self._number("I"), self._number("Q")))

        alignment = self.metadata.get("general.alignment", 32)
        if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
            raise self._corrupt(f"alignment {alignment!r} is no power of two")
        start = -(-self._offset // alignment) * alignment
        for name, shape, kind, offset in table:
            if name in self.tensors:
                raise self._corrupt(f"tensor {name!r} occurs twice")
            self.tensors[name] = self._tensor(name, shape, kind, start + offset)

    def _tensor(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> GGUFTensor:
        if kind not in _FORMATS:
            stored = _OTHER_TYPES.get(kind, f"type {kind}")
            valid = ", ".join(f.upper() for f, _, _ in _FORMATS.values())
            raise UnsupportedModel(
                f"{self.path.name}: tensor {name!r} is stored as {stored}; read are {valid}"
            )
        format, per_block, block_bytes = _FORMATS[kind]
        if 0 in shape:
            raise self._corrupt(f"tensor {name!r} is empty: shape {shape}")
        if shape[-1] % per_block:
            raise self._corrupt(f"rows of tensor {name!r} are no multiple of {per_block}: {shape}")
        row_bytes = shape[-1] // per_block * block_bytes
        size = prod(shape[:-1]) * row_bytes
        if offset + size > self._size:
            raise self._corrupt(
                f"tensor {name!r} ends at byte {offset + size}, the file at {self._size}"
            )
        raw = np.frombuffer(self._map, np.uint8, size, offset)
        data: npt.NDArray[np.generic]
        if format in _DTYPES:
            data = raw.view(_DTYPES[format]).reshape(shape)
        else:
            data = raw.reshape(*shape[:-1], row_bytes)
        return GGUFTensor(format, shape, data)

    def _value(self, kind: int, key: str) -> Any:
        if kind in _SCALARS:
            return self._number(_SCALARS[kind])
        if kind == _STRING:
            return self._string()
        if kind != _ARRAY:
            raise self._corrupt(f"metadata {key!r} has unknown type {kind}")
        item, count = self._number("I"), self._number("Q")
        if item == _STRING:
            # A string takes at least its length field; this also bounds a forged count.
            self._need(8 * count)
            return [self._string() for _ in range(count)]
        if item not in _SCALARS:
            raise self._corrupt(f"metadata {key!r} is an array of type {item}")
        size = struct.calcsize(_SCALARS[item]) * count
        self._need(size)
        values = np.frombuffer(self._map, f"<{_SCALARS[item]}", count, self._offset)
        self._offset += size
        return values.tolist()

    def _number(self, code: str) -> Any:
        size = struct.calcsize(f"<{code}")
        self._need(size)
        (value,) = struct.unpack_from(f"<{code}", self._map, self._offset)
        self._offset += size
        return value

    def _string(self) -> str:
        start = self._offset + 8
        self._need(8)
        length = int.from_bytes(self._map[self._offset : start], "little")
        self._need(8 + length)
        self._offset = start + length
        try:
            return self._map[start : self._offset].decode()
        except UnicodeDecodeError:
            raise self._corrupt(f"the string at byte {start} is no UTF-8") from None

    def _need(self, size: int) -> None:
        if self._offset + size > self._size:
            raise self._corrupt(f"it ends at byte {self._size}, inside its header")

    def _corrupt(self, what: str) -> CorruptModel:
        return CorruptModel(f"{self.path} is truncated or damaged: {what}")
