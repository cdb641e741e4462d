"""Rotary position embedding (Su et al. 2104.09864), Hugging Face's rotate-half order, and scaling.

Every pair i of a head's numbers (i and i + D/2) turns by position * frequency[i], where
frequency[i] = theta^(-2i/D) / divisor[i]. The divisors are the scaling: one number for ``linear``,
and for ``llama3`` 1 for short wavelengths, ``factor`` for long ones and a blend between. Knows no
model. Shape letters: R rows, D numbers per head.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from slipstream.models.checkpoint import LlamaConfig, RopeScaling

F32 = npt.NDArray[np.float32]


def frequencies(config: LlamaConfig) -> F32:
    """(D/2,) angle per position of each pair, scaling included."""
    base = _unscaled(config.head_dim, config.rope_theta)
    if config.rope_scaling is not None:
        base = base / frequency_factors(config.head_dim, config.rope_theta, config.rope_scaling)
    return base.astype(np.float32)


def frequency_factors(head_dim: int, theta: float, scaling: RopeScaling) -> npt.NDArray[np.float64]:
    """(D/2,) divisors of the frequencies."""
    if scaling.kind == "linear":
        return np.full(head_dim // 2, scaling.factor)
    wavelengths = 2 * np.pi / _unscaled(head_dim, theta)
    low, high = scaling.low_freq_factor, scaling.high_freq_factor
    blend = np.clip((scaling.original_context / wavelengths - low) / (high - low), 0.0, 1.0)
    return 1.0 / ((1.0 - blend) / scaling.factor + blend)


def rotation(frequencies: F32, positions: npt.NDArray[np.int64]) -> tuple[F32, F32]:
    """(R, D) cosines and sines for rows at these positions."""
    angles = positions.astype(np.float32)[:, None] * frequencies
    angles = np.concatenate([angles, angles], axis=-1)
    return np.cos(angles), np.sin(angles)


def rotate(heads: F32, cos: F32, sin: F32) -> F32:
    """Turn (R, heads, D) by the rotation of each row."""
    first, second = np.split(heads, 2, axis=-1)
    turned: F32 = np.concatenate([-second, first], axis=-1)
    return np.asarray(heads * cos[:, None] + turned * sin[:, None], np.float32)


def _unscaled(head_dim: int, theta: float) -> npt.NDArray[np.float64]:
    exponents = np.arange(0, head_dim, 2, dtype=np.float64) / head_dim
    return np.asarray(theta**-exponents, np.float64)
