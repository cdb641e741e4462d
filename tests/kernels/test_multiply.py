"""Products of every format on every instruction set: right, and the same bits in any company."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import kernels
from slipstream.kernels.packed import MatrixShape, PackedFormat, aligned_zeros, pack_rows
from slipstream.models.checkpoint import StorageFormat

from .stored_rows import stored_rows

ISAS = kernels.isas()

# stored, packed, activations, error relative to |x| . |w|
CASES: list[tuple[StorageFormat, PackedFormat, str, float]] = [
    ("f32", "f32", "f32", 1e-6),
    ("bf16", "bf16", "bf16", 2**-8),
    ("q8_0", "q8", "bf16", 2**-8),
    ("q4_1", "q4", "bf16", 2**-8),
    ("q4_0", "q4", "bf16", 2**-8),
    ("q8_0", "q8", "int8", 0.02),
    ("q4_1", "q4", "int8", 0.02),
]


def product(
    case: tuple[StorageFormat, PackedFormat, str, float], isa: str, x: np.ndarray, outputs: int
) -> tuple[np.ndarray, np.ndarray]:
    """The core's product and the dequantised weights, (outputs, inputs)."""
    stored, packed, activations, _ = case
    tensor, values = stored_rows(stored, outputs, x.shape[1], seed=3)
    shape = MatrixShape(packed, outputs, x.shape[1])
    memory = aligned_zeros(shape.bytes)
    pack_rows(shape, memory, stored, tensor.data, np.arange(outputs))
    y = np.empty((len(x), -(-outputs // 16) * 16), np.float32)
    kernels.native().multiply(shape.view(memory), isa, activations, x, y)
    return y[:, :outputs], values


def rows(count: int, inputs: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, inputs)).astype(np.float32)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_products_are_right_within_the_activations_precision(
    case: tuple[StorageFormat, PackedFormat, str, float], isa: str
) -> None:
    x = rows(5, 160)
    y, values = product(case, isa, x, 70)
    exact = x.astype(np.float64) @ values.T.astype(np.float64)
    size = np.abs(x).astype(np.float64) @ np.abs(values).T
    assert (np.abs(y - exact) <= case[3] * size).all()


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2]}")
def test_a_row_has_the_same_bits_in_any_company(
    case: tuple[StorageFormat, PackedFormat, str, float], isa: str
) -> None:
    x = rows(35, 96, seed=1)
    alone = np.concatenate([product(case, isa, row[None], 112)[0] for row in x])
    for count in (2, 3, 5, 8, 16, 17, 35):
        np.testing.assert_array_equal(product(case, isa, x[:count], 112)[0], alone[:count])


@pytest.mark.parametrize("isa", ISAS)
def test_rows_of_zeros_and_huge_rows_are_no_special_case(isa: str) -> None:
    x = np.zeros((3, 64), np.float32)
    x[1] = 1e30
    x[2, 5] = 1e-38
    for case in CASES:
        y, _ = product(case, isa, x, 16)
        assert not y[0].any()
        assert np.isfinite(y).all()


@pytest.mark.parametrize("isa", ISAS)
def test_nan_stays_in_its_row(isa: str) -> None:
    x = rows(4, 64)
    x[2] = np.nan
    for case in CASES:
        y, _ = product(case, isa, x, 32)
        assert np.isnan(y[2]).all()
        assert np.isfinite(y[[0, 1, 3]]).all()


def test_wrong_calls_are_refused() -> None:
    native = kernels.native()
    shape = MatrixShape("q4", 32, 64)
    packed = shape.view(aligned_zeros(shape.bytes))
    x, y = rows(2, 64), np.empty((2, 32), np.float32)
    for isa, activations, inputs, outputs in [
        ("sse9", "bf16", x, y),
        (ISAS[0], "fp8", x, y),
        (ISAS[0], "f32", x, y),
        (ISAS[0], "bf16", rows(2, 32), y),
        (ISAS[0], "bf16", x, np.empty((3, 32), np.float32)),
        (ISAS[0], "bf16", x[:0], y[:0]),
    ]:
        with pytest.raises(ValueError):
            native.multiply(packed, isa, activations, inputs, outputs)
