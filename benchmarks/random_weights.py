"""Checkpoints of a given shape with random weights: a pass costs the same with any numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

from slipstream.models.checkpoint import LlamaConfig, StorageFormat, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.layout import EMBEDDING, LM_HEAD, tensor_shapes


def _config(hidden: int, inner: int, layers: int, heads: int, kv: int, **more: Any) -> LlamaConfig:
    defaults: dict[str, Any] = {
        "architecture": "llama",
        "vocab_size": 49152,
        "head_dim": 64,
        "rms_norm_eps": 1e-5,
        "rope_theta": 1e5,
        "max_context": 8192,
        "tie_embeddings": True,
    }
    return LlamaConfig(
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=kv,
        **(defaults | more),
    )


SHAPES = {
    "smollm2-135m": _config(576, 1536, 30, 9, 3),
    "smollm2-1.7b": _config(2048, 8192, 24, 32, 32),
    "llama-3.2-1b": _config(2048, 8192, 16, 32, 8, vocab_size=128256, rope_theta=5e5),
}


class RandomCheckpoint:
    """A checkpoint whose tensors are made up when they are asked for.

    Args:
        shape: a key of ``SHAPES``.
        weights: ``q4`` (Q4_1, embedding Q8_0, as files have them), ``int8`` (Q8_0) or ``bf16``.
    """

    fingerprint = ""  # not worth a place in the cache
    tokenizer: Any = None

    def __init__(self, shape: str, weights: str) -> None:
        self.config = SHAPES[shape]
        self.name = f"random {shape}"
        self._weights = weights
        self._shapes = tensor_shapes(self.config)

    def names(self) -> list[str]:
        return list(self._shapes)

    def stored(self, name: str) -> StoredTensor:
        shape = self._shapes[name]
        rng = np.random.default_rng(len(name))
        if len(shape) == 1:
            return StoredTensor("f32", shape, np.ones(shape, np.float32))
        if self._weights == "bf16":
            # Random mantissas, exponents of about 1/64.
            bits = rng.integers(0, 256, shape, np.uint16) | np.uint16(0x3C00)
            return StoredTensor("bf16", shape, bits)
        outer = name in (EMBEDDING, LM_HEAD)
        format: StorageFormat = "q8_0" if outer or self._weights == "int8" else "q4_1"
        head, bytes_ = (2, 34) if format == "q8_0" else (4, 20)
        blocks = rng.integers(0, 256, (shape[0] * shape[1] // 32, bytes_), np.uint8)
        scale = np.float16(2**-9 if format == "q8_0" else 2**-6)
        blocks[:, :head] = np.array([scale, -8 * scale], np.float16).view(np.uint8)[:head]
        return StoredTensor(format, shape, blocks.reshape(shape[0], -1))

    def tensor(self, name: str) -> np.ndarray:
        return dequantize(self.stored(name))
