"""Damaged GGUF containers: always a ModelError, whatever the damage."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from slipstream.errors import CorruptModel, ModelError, UnsupportedModel
from slipstream.models.gguf import GGUFCheckpoint
from slipstream.models.gguf_file import GGUFFile


@pytest.fixture(scope="module")
def good(tiny_gguf: Path) -> bytes:
    return tiny_gguf.read_bytes()


@pytest.fixture
def opened(tmp_path: Path) -> Callable[[bytes], GGUFCheckpoint]:
    def open_bytes(content: bytes) -> GGUFCheckpoint:
        path = tmp_path / "damaged.gguf"
        path.write_bytes(content)
        checkpoint = GGUFCheckpoint(path)
        checkpoint.tokenizer  # noqa: B018 (built on first use)
        return checkpoint

    return open_bytes


def test_a_file_cut_anywhere_is_refused(
    good: bytes, opened: Callable[[bytes], GGUFCheckpoint]
) -> None:
    offsets = [0, 1, 3, 4, 7, 8, 15, 16, 23, 24, *range(25, len(good), len(good) // 150)]
    for offset in [*offsets, len(good) - 1]:
        with pytest.raises(CorruptModel, match=r"truncated|empty|no GGUF"):
            opened(good[:offset])


def test_changed_bytes_give_a_model_or_a_model_error(
    good: bytes, opened: Callable[[bytes], GGUFCheckpoint]
) -> None:
    rng = np.random.default_rng(7)
    header = len(good) // 6  # denser where the structure is
    for _ in range(300):
        damaged = bytearray(good)
        for offset in rng.integers(0, header, rng.integers(1, 4)):
            damaged[offset] = rng.integers(0, 256)
        with contextlib.suppress(ModelError):
            opened(bytes(damaged))


@pytest.mark.parametrize("value", [0, 1, 2**31, 2**32 - 1, 2**63, 2**64 - 1])
@pytest.mark.parametrize("offset", [8, 16, 24])
def test_absurd_counts_and_lengths_are_refused_at_once(
    value: int, offset: int, good: bytes, opened: Callable[[bytes], GGUFCheckpoint]
) -> None:
    with pytest.raises(ModelError):
        opened(good[:offset] + value.to_bytes(8, "little") + good[offset + 8 :])


def test_other_files_versions_and_byte_orders_are_named(
    good: bytes, opened: Callable[[bytes], GGUFCheckpoint], tmp_path: Path
) -> None:
    with pytest.raises(CorruptModel, match="no GGUF file"):
        opened(b"PK\x03\x04" + good[4:])
    with pytest.raises(UnsupportedModel, match="version 1"):
        opened(good[:4] + (1).to_bytes(4, "little") + good[8:])
    with pytest.raises(UnsupportedModel, match="big-endian"):
        opened(good[:4] + (3).to_bytes(4, "big") + good[8:])
    with pytest.raises(CorruptModel, match="No such file"):
        GGUFFile(tmp_path / "absent.gguf")
    with pytest.raises(CorruptModel, match="directory"):
        GGUFFile(tmp_path)
