"""Packing keeps every number a format can hold, and refuses those it can't."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import kernels
from slipstream.kernels.packed import MatrixShape, PackedFormat, aligned_zeros, pack_rows, repack
from slipstream.models.checkpoint import StorageFormat

from .stored_rows import FORMATS, stored_rows

KEPT: dict[str, PackedFormat] = {
    "f32": "f32",
    "f16": "f32",
    "bf16": "bf16",
    "q8_0": "q8",
    "q4_0": "q4",
    "q4_1": "q4",
}


def unpacked(shape: MatrixShape, memory: np.ndarray) -> np.ndarray:
    rows, cols = -(-shape.rows // 16) * 16, -(-shape.cols // 32) * 32
    out = np.empty((rows, cols), np.float32)
    kernels.native().unpack(shape.view(memory), out)
    return out


@pytest.mark.parametrize("format", FORMATS)
def test_stored_numbers_survive_packing(format: StorageFormat) -> None:
    tensor, values = stored_rows(format, 37, 96)
    shape = MatrixShape(KEPT[format], 37, 96)
    memory = aligned_zeros(shape.bytes)
    assert pack_rows(shape, memory, format, tensor.data, np.arange(37)) is None
    np.testing.assert_allclose(unpacked(shape, memory)[:37], values, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("format", ["f32", "f16", "bf16"])
@pytest.mark.parametrize(("packed", "bound"), [("bf16", 2**-8), ("q8", 1 / 127), ("q4", 1 / 15)])
def test_rounding_stays_within_a_step(
    format: StorageFormat, packed: PackedFormat, bound: float
) -> None:
    tensor, values = stored_rows(format, 16, 64, seed=1)
    shape = MatrixShape(packed, 16, 64)
    memory = aligned_zeros(shape.bytes)
    assert pack_rows(shape, memory, format, tensor.data, np.arange(16)) is None
    error = np.abs(unpacked(shape, memory) - values)
    groups = np.abs(values).reshape(16, 2, 32).max(-1)
    spread = 2 * groups if packed == "q4" else groups
    assert (error.reshape(16, 2, 32) <= bound * spread[..., None]).all()


@pytest.mark.parametrize("format", ["q8", "q4", "f32"])
def test_some_rows_are_packed_anew(format: PackedFormat) -> None:
    tensor, _ = stored_rows("q8_0", 37, 96)
    shape = MatrixShape("q8", 37, 96)
    memory = aligned_zeros(shape.bytes)
    pack_rows(shape, memory, "q8_0", tensor.data, np.arange(37))
    ids, wanted = np.array([36, 2, 3, 17]), MatrixShape(format, 4, 96)
    handle = repack(shape.view(memory), ids, wanted)
    out = np.empty((16, 96), np.float32)
    kernels.native().unpack(handle, out)
    again = aligned_zeros(wanted.bytes)
    pack_rows(wanted, again, "q8_0", tensor.data[ids], np.arange(4))
    np.testing.assert_array_equal(out, unpacked(wanted, again))
    with pytest.raises(ValueError, match="no such row"):
        repack(shape.view(memory), np.array([48]), MatrixShape(format, 1, 96))


def test_rows_go_where_they_are_told_and_the_rest_is_zero() -> None:
    tensor, values = stored_rows("q4_1", 3, 32)
    shape = MatrixShape("q4", 20, 32)
    memory = aligned_zeros(shape.bytes)
    pack_rows(shape, memory, "q4_1", tensor.data, np.array([19, 0, 7]))
    out = unpacked(shape, memory)
    np.testing.assert_allclose(out[[19, 0, 7]], values, rtol=1e-6)
    others = [row for row in range(20) if row not in (19, 0, 7)]
    assert not out[others].any()


def test_inputs_are_padded_to_groups_with_zeros() -> None:
    tensor, values = stored_rows("f32", 5, 48)
    for packed in ("f32", "bf16", "q8", "q4"):
        shape = MatrixShape(packed, 5, 48)
        memory = aligned_zeros(shape.bytes)
        assert pack_rows(shape, memory, "f32", tensor.data, np.arange(5)) is None
        np.testing.assert_allclose(unpacked(shape, memory)[:5, :48], values, atol=0.3)


@pytest.mark.parametrize("packed", ["f32", "bf16", "q8", "q4"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_not_finite_are_refused_with_their_row(
    packed: PackedFormat, bad: float
) -> None:
    tensor, _ = stored_rows("f32", 9, 32)
    tensor.data[6, 3] = bad
    shape = MatrixShape(packed, 9, 32)
    assert pack_rows(shape, aligned_zeros(shape.bytes), "f32", tensor.data, np.arange(9)) == 6


@pytest.mark.parametrize("format", ["q8_0", "q4_0", "q4_1"])
def test_a_scale_that_is_not_finite_is_refused(format: StorageFormat) -> None:
    tensor, _ = stored_rows(format, 4, 64)
    tensor.data[2, :2] = np.array([np.nan], np.float16).view(np.uint8)
    shape = MatrixShape(KEPT[format], 4, 64)
    assert pack_rows(shape, aligned_zeros(shape.bytes), format, tensor.data, np.arange(4)) == 2


def test_wrong_sizes_are_refused() -> None:
    native = kernels.native()
    tensor, _ = stored_rows("f32", 4, 32)
    shape = MatrixShape("q4", 4, 32)
    rows, memory = tensor.data.view(np.uint8), aligned_zeros(shape.bytes)
    good = ("f32", rows, 32, "q4", 4, memory, np.arange(4), 1)
    native.pack(*good)
    changes = {
        0: ["q5_1", "q4_0"],
        1: [rows[:, :64].copy()],
        2: [64, 0, -1, 2**40],
        3: ["q3"],
        4: [40, 0, -7],
        5: [memory[64:]],
        6: [np.array([0, 1, 2, 16]), np.array([0, 1, 2, -1]), np.arange(3)],
        7: [0, 100000],
    }
    for place, values in changes.items():
        for value in values:
            with pytest.raises(ValueError):
                native.pack(*good[:place], value, *good[place + 1 :])
    with pytest.raises(ValueError, match="aligned"):
        native.Packed("q4", 4, 32, aligned_zeros(shape.bytes + 1)[1:])
