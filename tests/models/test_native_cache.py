"""Packed weights are kept on disk, found again, and packed anew when the file is damaged."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slipstream import kernels
from slipstream.kernels.packed import Bytes
from slipstream.models import packed_cache
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.native_weights import WeightPlan
from slipstream.models.packed_cache import HEADER, cache_file, load_or_pack


class Packer:
    """Packs a plan and counts how often."""

    def __init__(self, plan: WeightPlan) -> None:
        self.plan, self.calls = plan, 0

    def __call__(self, block: Bytes) -> None:
        self.calls += 1
        self.plan.pack(block, threads=1)


@pytest.fixture
def plan(
    tiny_checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> WeightPlan:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    monkeypatch.setattr(packed_cache, "SMALLEST", 0)
    return WeightPlan(tiny_checkpoint, "q4", 3)


def test_the_second_start_maps_what_the_first_packed(plan: WeightPlan) -> None:
    pack = Packer(plan)
    first = load_or_pack(plan, "abc", pack)
    second = load_or_pack(plan, "abc", pack)
    assert pack.calls == 1
    assert isinstance(second, np.memmap)
    np.testing.assert_array_equal(first, second)
    kernels.native().Packed(
        "q4", 48, 96, plan.matrices["model.layers.0.mlp.down_proj"].memory(second)
    )
    assert not list(cache_file(plan, "abc").parent.glob("*.partial"))


def test_other_weights_have_another_file(plan: WeightPlan, tiny_checkpoint: Checkpoint) -> None:
    names = {
        cache_file(other, fingerprint)
        for other in (
            plan,
            WeightPlan(tiny_checkpoint, "int8", 3),
            WeightPlan(tiny_checkpoint, "q4", 2),
        )
        for fingerprint in ("abc", "abd")
    }
    assert len(names) == 6


@pytest.mark.parametrize("damage", ["truncated", "longer", "header", "weights", "empty", "other"])
def test_a_damaged_file_is_packed_anew(plan: WeightPlan, damage: str) -> None:
    pack = Packer(plan)
    good = np.array(load_or_pack(plan, "abc", pack))
    path = cache_file(plan, "abc")
    content = bytearray(path.read_bytes())
    if damage == "truncated":
        content = content[:-1]
    elif damage == "longer":
        content += b"\0"
    elif damage == "header":
        content[40] ^= 1
    elif damage == "weights":
        content[HEADER : HEADER + 64] = bytes(64)
    elif damage == "empty":
        content = bytearray()
    else:
        other = cache_file(plan, "abd")
        load_or_pack(plan, "abd", pack)
        content = bytearray(other.read_bytes())
    path.write_bytes(content)
    before = pack.calls
    np.testing.assert_array_equal(load_or_pack(plan, "abc", pack), good)
    assert pack.calls == before + 1
    load_or_pack(plan, "abc", pack)
    assert pack.calls == before + 1


def test_a_cache_that_cant_be_written_costs_nothing_but_time(
    plan: WeightPlan, tmp_path: Path
) -> None:
    (tmp_path / "packed").write_text("a file where the folder should be")
    pack = Packer(plan)
    for _ in range(2):
        load_or_pack(plan, "abc", pack)
    assert pack.calls == 2


def test_nothing_is_kept_without_a_fingerprint(plan: WeightPlan, tmp_path: Path) -> None:
    load_or_pack(plan, "", Packer(plan))
    assert not list(tmp_path.iterdir())
