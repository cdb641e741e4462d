"""Whatever the extension is called with, the answer is a result or a Python exception."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.kernels.packed import MatrixShape, aligned_zeros
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.native import NativeModel

ODD = st.sampled_from([-(2**62), -(2**31), -2, -1, 0, 1, 2, 3, 47, 48, 319, 320, 511, 2**31, 2**62])
REFUSALS = (ValueError, TypeError, MemoryError, OverflowError)


@settings(max_examples=80, deadline=None, derandomize=True)
@given(data=st.data())
def test_odd_passes_are_answered_with_an_exception(
    data: st.DataObject, tiny_checkpoint: Checkpoint
) -> None:
    stack = stack_of(tiny_checkpoint)
    handle = stack.open()
    committed = pending = 0
    for _ in range(data.draw(st.integers(1, 6))):
        rows = data.draw(st.integers(0, 9))
        sequences = data.draw(st.lists(ODD | st.just(handle), min_size=rows, max_size=rows))
        if data.draw(st.booleans()):
            sequences = [handle] * rows
        good = [pending + i - 1 for i in range(rows)]
        parents = data.draw(st.just(good) | st.lists(ODD, max_size=10))
        tokens = data.draw(st.just([1] * rows) | st.lists(ODD, max_size=10))
        wanted = data.draw(st.just(list(range(rows))) | st.lists(ODD, max_size=4))
        shape = data.draw(st.sampled_from([(rows, 48), (1, 48), (rows, 47), (0, 48)]))
        call: dict[str, Any] = {
            "sequences": np.array(sequences, np.int64),
            "parents": np.array(parents, np.int64),
            "tokens": data.draw(st.sampled_from([np.array(tokens, np.int64), None])),
            "vectors": data.draw(st.sampled_from([None, None, np.ones(shape, np.float32)])),
            "logit_rows": wanted,
            "head": data.draw(st.just(0) | ODD),
            "logits": np.empty((len(wanted), data.draw(st.sampled_from([320, 320, 319]))), "f4"),
            "last": data.draw(st.sampled_from([None, np.empty(shape, np.float32)])),
            "layers": [
                (layer, np.empty((rows, 48), np.float32))
                for layer in data.draw(st.lists(ODD, max_size=2))
            ],
        }
        try:
            stack.forward(**call)
            pending += rows * (set(sequences) == {handle})
        except REFUSALS:
            pass
        path = data.draw(st.just(list(range(pending))) | st.lists(ODD, max_size=3))
        for action, argument in [("commit", path), ("truncate", data.draw(ODD))]:
            if data.draw(st.booleans()):
                try:
                    getattr(stack, action)(handle, argument)
                    committed, pending = stack.committed(handle), 0
                except REFUSALS:
                    pass
    assert 0 <= committed <= 512


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    field=st.sampled_from(
        [
            "hidden",
            "intermediate",
            "heads",
            "kv_heads",
            "head_dim",
            "vocab",
            "max_context",
            "max_rows",
            "eps",
            "activations",
            "frequencies",
            "wide_cache",
        ]
    ),
    value=ODD | st.sampled_from([None, "bf16", "int9", 0.5, [], [1.0] * 7]),
)
def test_odd_shapes_are_answered_with_an_exception(field: str, value: object) -> None:
    shape: dict[str, object] = {
        "hidden": 32,
        "intermediate": 32,
        "heads": 2,
        "kv_heads": 1,
        "head_dim": 16,
        "vocab": 16,
        "max_context": 8,
        "max_rows": 4,
        "eps": 1e-5,
        "activations": "bf16",
        "wide_cache": False,
        "frequencies": [1.0] * 8,
    }
    try:
        stack = kernels.native().Stack(shape | {field: value}, kernels.isa(), 1)
    except (*REFUSALS, RuntimeError):  # nanobind reports a failed cast as a RuntimeError
        return
    wrong = MatrixShape("q4", 16, 32)
    matrix = wrong.view(aligned_zeros(wrong.bytes))
    for call in (
        lambda: stack.add_layer([(matrix, 0)], matrix, matrix, matrix, {}),
        lambda: stack.set_embedding(matrix),
        lambda: stack.add_head(matrix, 7),
        lambda: stack.set_fusion(matrix, None),
        lambda: stack.set_final_norm(np.ones(7, np.float32)),
        lambda: stack.trim_head([0, 99]),
        lambda: stack.drop_head(3),
    ):
        try:
            call()
        except REFUSALS:
            continue


def stack_of(checkpoint: Checkpoint) -> Any:
    """The bare extension object behind a model, kept for all examples."""
    if checkpoint.fingerprint not in _STACKS:
        model = NativeModel(checkpoint, EngineConfig(weights="q4", threads=2))
        _STACKS[checkpoint.fingerprint] = model._stack
    return _STACKS[checkpoint.fingerprint]


_STACKS: dict[str, Any] = {}
