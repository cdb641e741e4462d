"""De-quantisation against ggml's own Python implementation."""

from __future__ import annotations

import gguf
import numpy as np
import pytest

from slipstream.models.checkpoint import StoredTensor
from slipstream.models.dequantize import dequantize

QUANTISED = ["q4_0", "q4_1", "q8_0"]


@pytest.mark.parametrize("format", QUANTISED)
def test_quantised_numbers_are_those_of_ggml(format: str) -> None:
    kind = gguf.GGMLQuantizationType[format.upper()]
    numbers = np.random.default_rng(1).standard_normal((24, 96)).astype(np.float32)
    data = gguf.quants.quantize(numbers, kind)
    ours = dequantize(StoredTensor(format, numbers.shape, data))
    assert ours.dtype == np.float32
    np.testing.assert_array_equal(ours, gguf.quants.dequantize(data, kind))


@pytest.mark.parametrize("format", QUANTISED)
def test_any_bytes_are_read_as_ggml_reads_them(format: str) -> None:
    kind = gguf.GGMLQuantizationType[format.upper()]
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    data = np.random.default_rng(2).integers(0, 256, (50, 3 * block_bytes), np.uint8)
    data[:, ::block_bytes] = data[:, ::block_bytes] & 0x7F  # no matter: scales of any size
    data[:, 1::block_bytes] &= 0x3B  # finite float16 scales
    data[:, 3::block_bytes] &= 0x3B
    ours = dequantize(StoredTensor(format, (50, 3 * per_block), data))
    np.testing.assert_array_equal(ours, gguf.quants.dequantize(data, kind))


def test_bfloat16_is_the_upper_half_of_float32() -> None:
    numbers = np.random.default_rng(3).standard_normal((5, 7)).astype(np.float32)
    halves = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    ours = dequantize(StoredTensor("bf16", (5, 7), halves))
    np.testing.assert_array_equal(ours.view(np.uint32), halves.astype(np.uint32) << 16)


def test_float16_is_widened_and_float32_is_not_copied() -> None:
    half = np.array([1.5, -0.25, 65504.0], np.float16)
    np.testing.assert_array_equal(dequantize(StoredTensor("f16", (3,), half)), half)
    single = np.array([[1.0, 2.0]], np.float32)
    assert dequantize(StoredTensor("f32", (1, 2), single)) is single
