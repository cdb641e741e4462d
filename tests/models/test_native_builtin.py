"""The compiled core on the built-in model: close to float32, and bit for bit its own."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from slipstream.config import EngineConfig
from slipstream.models.base import PREFIX, Rows, TargetModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.native import NativeModel
from slipstream.models.reference import ReferenceModel

pytestmark = pytest.mark.model

TEXT = "The quick brown fox jumps over the lazy dog. def add(a, b):\n    return a + b\n" * 2


@pytest.fixture(scope="module")
def text(builtin_checkpoint: Checkpoint) -> list[int]:
    return builtin_checkpoint.tokenizer.encode(TEXT)[:40]


@pytest.fixture(scope="module")
def expected(builtin_checkpoint: Checkpoint, text: list[int]) -> Iterator[np.ndarray]:
    yield logits(ReferenceModel(builtin_checkpoint), text)


def logits(model: TargetModel, text: list[int]) -> np.ndarray:
    return np.asarray(model.forward(Rows.chain(model.open(), text)).logits)


def divergence(p_logits: np.ndarray, q_logits: np.ndarray) -> float:
    """Mean KL(p, q) over rows, in nats."""
    p, q = (
        x - x.max(-1, keepdims=True) - np.log(np.exp(x - x.max(-1, keepdims=True)).sum(-1))[:, None]
        for x in (p_logits.astype(np.float64), q_logits.astype(np.float64))
    )
    return float((np.exp(p) * (p - q)).sum(-1).mean())


# weights, activations, most KL to float32 computing with the file's own weights
SETTINGS = [
    ("f32", "bf16", 1e-8),
    ("auto", "bf16", 1e-2),
    ("auto", "int8", 5e-2),
]


@pytest.mark.parametrize(("weights", "activations", "most"), SETTINGS)
def test_distributions_are_those_of_float32(
    weights: str,
    activations: str,
    most: float,
    builtin_checkpoint: Checkpoint,
    text: list[int],
    expected: np.ndarray,
) -> None:
    config = EngineConfig(weights=weights, activations=activations, threads=2)
    model = NativeModel(builtin_checkpoint, config)
    ours = logits(model, text)
    assert divergence(expected, ours) < most
    if weights == "f32":
        np.testing.assert_allclose(ours, expected, atol=2e-3)

    # Alone, in chunks and in a tree: the same bits.
    sequence = model.open()
    model.prefill(sequence, text[:-4])
    model.forward(
        Rows(
            sequences=np.full(3, sequence),
            tokens=np.array([1, *text[-4:-2]]),
            parents=np.array([PREFIX, PREFIX, 1]),
        )
    )
    tail = Rows(
        sequences=np.full(2, sequence), tokens=np.array(text[-2:]), parents=np.array([2, 3])
    )
    np.testing.assert_array_equal(model.forward(tail).logits, ours[-2:])
