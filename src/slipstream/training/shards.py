"""A shard of training text: conversations, which tokens are the answer, what the target thought.

One safetensors file per shard, written aside and renamed, so a shard is either whole or not there.
Row t of ``features`` is the target's LM-head input after token t; ``top_ids`` and ``normalisers``
are the best tokens and the logsumexp of its logits there. The last token of a conversation was
never fed, so its row is zero; so are ``top_ids`` and ``normalisers`` outside the answer.

Promises that what was cut off or damaged is refused. N tokens, S conversations, H hidden, K top.
"""

from __future__ import annotations

import os
import zlib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, SlipstreamError, UnsupportedModel
from slipstream.models.safetensors_file import Container, read_container, write_container

FORMAT: Final = "1"
_WORDS: Final = {"<f4": "F32", "<u2": "BF16", "<i4": "I32", "|u1": "U8"}


@dataclass(frozen=True)
class Shard:
    """The arrays of one shard.

    Args:
        tokens: (N,) int32, all conversations one after the other.
        offsets: (S + 1,) int32, where each begins.
        answer_starts: (S,) int32, index of the first answer token within its conversation.
        temperatures: (S,) float32 of the answers; -1 where the text was imported.
        held_out: (S,) uint8, 1 for conversations that are never trained on.
        signatures: (S, M) int32 MinHash of each user turn.
        features: (N, H) bfloat16 as uint16, or (0, H) if they are recomputed when needed.
        top_ids: (N, K) int32, best first.
        normalisers: (N,) float32.
    """

    tokens: npt.NDArray[np.int32]
    offsets: npt.NDArray[np.int32]
    answer_starts: npt.NDArray[np.int32]
    temperatures: npt.NDArray[np.float32]
    held_out: npt.NDArray[np.uint8]
    signatures: npt.NDArray[np.int32]
    features: npt.NDArray[np.uint16]
    top_ids: npt.NDArray[np.int32]
    normalisers: npt.NDArray[np.float32]

    def __len__(self) -> int:
        return len(self.answer_starts)

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        """Field name -> array."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def write_shard(path: Path, shard: Shard) -> None:
    """Write a shard as a whole.

    Raises:
        SlipstreamError: the disk is full or not writable; nothing half-written stays.
    """
    _check(path, shard)
    arrays = {name: (_WORDS[array.dtype.str], array) for name, array in shard.arrays().items()}
    metadata = {"slipstream_data": FORMAT, "crc32": str(_checksum(shard))}
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        write_container(partial, Container(arrays, metadata))
        os.replace(partial, path)
    except OSError as error:
        raise SlipstreamError(f"{path} can't be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def read_shard(path: Path, *, check: bool = True) -> Shard:
    """Map a shard into memory.

    Args:
        check: read everything once and compare its checksum.

    Raises:
        CorruptModel: missing, cut off or damaged.
        UnsupportedModel: not a shard, or of another version.
    """
    container = read_container(path)
    if container.metadata.get("slipstream_data") != FORMAT:
        raise UnsupportedModel(f"{path} is no shard of training data of version {FORMAT}")
    try:
        shard = Shard(**{field.name: container.arrays[field.name][1] for field in fields(Shard)})
    except KeyError as missing:
        raise CorruptModel(f"{path}: array {missing} is missing") from None
    _check(path, shard)
    if check and container.metadata.get("crc32") != str(_checksum(shard)):
        raise CorruptModel(f"{path} is damaged: its checksum doesn't match")
    return shard


def to_bf16(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16, ties to even, as its 16 bits."""
    bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Back to float32, exactly."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _checksum(shard: Shard) -> int:
    value = 0
    for array in shard.arrays().values():
        value = zlib.crc32(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data, value)
    return value


def _check(path: Path, shard: Shard) -> None:
    count, tokens = len(shard.answer_starts), len(shard.tokens)
    lengths = np.diff(shard.offsets)
    sound = (
        shard.offsets.shape == (count + 1,)
        and shard.offsets[0] == 0
        and shard.offsets[-1] == tokens
        and bool((shard.answer_starts > 0).all())
        and bool((shard.answer_starts < lengths).all())
        and all(len(a) == count for a in (shard.temperatures, shard.held_out, shard.signatures))
        and len(shard.features) in (0, tokens)
        and len(shard.top_ids) == len(shard.normalisers) == tokens
    )
    if not sound:
        raise CorruptModel(f"{path}: the lengths of its arrays contradict each other")
