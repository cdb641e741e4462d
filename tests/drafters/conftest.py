"""A model whose logits spell out which context they were computed from, and requests for it."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from slipstream.config import SamplingParams
from slipstream.models.base import (
    NO_FEATURES,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    ModelInfo,
    Rows,
)
from slipstream.models.ledger import Ledger
from slipstream.types import SequenceState


def logits_after(context: Sequence[int], vocab_size: int) -> Any:
    """(V,) float32 that depend on every token of the context."""
    seed = zlib.crc32(np.array(context, np.int64).tobytes())
    return np.random.default_rng(seed).normal(size=vocab_size).astype(np.float32)


class ContextModel:
    """A TargetModel whose cache is the tokens themselves, so that a test can read it."""

    def __init__(self, vocab_size: int = 12, max_context: int = 1000) -> None:
        self.info = ModelInfo(
            name="context",
            vocab_size=vocab_size,
            hidden_size=1,
            num_layers=0,
            max_context=max_context,
            fingerprint="",
        )
        self.capabilities = Capabilities()
        self.passes: list[int] = []  # rows of each forward pass
        self.cache: dict[int, list[int]] = {}
        self._pending: dict[int, list[int]] = {}
        self._ledger = Ledger(vocab_size=vocab_size, max_context=max_context)

    def open(self) -> int:
        handle = self._ledger.open()
        self.cache[handle], self._pending[handle] = [], []
        return handle

    def close(self, sequence: int) -> None:
        self._ledger.close(sequence)
        del self.cache[sequence], self._pending[sequence]

    def length(self, sequence: int) -> int:
        return self._ledger.committed(sequence)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        self.forward(Rows.chain(sequence, tokens, logits=False))
        self.commit(sequence, range(len(tokens)))
        return ForwardOutput(logits=np.zeros((0, self.info.vocab_size), np.float32))

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        placement = self._ledger.place(rows)
        self.passes.append(len(rows))
        logits = []
        for row, (handle, token) in enumerate(zip(rows.sequences, rows.tokens, strict=True)):
            pending = self._pending[int(handle)]
            pending.append(int(token))
            if rows.wants_logits is None or rows.wants_logits[row]:
                path = self._ledger.ancestors(int(handle), int(placement.slots[row]))
                context = self.cache[int(handle)] + [pending[slot] for slot in path]
                logits.append(logits_after(context, self.info.vocab_size))
        return ForwardOutput(logits=np.array(logits, np.float32))

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self._ledger.commit(sequence, path)
        pending = self._pending[sequence]
        self.cache[sequence] += [pending[slot] for slot in path]
        pending.clear()

    def truncate(self, sequence: int, length: int) -> None:
        self._ledger.truncate(sequence, length)
        del self.cache[sequence][length:]
        self._pending[sequence].clear()


@pytest.fixture
def context_model() -> Callable[..., ContextModel]:
    """Makes a ContextModel; its logits are those of ``logits_after`` (its ``after``)."""
    return ContextModel


@pytest.fixture
def logits_of() -> Callable[[Sequence[int], int], Any]:
    """The logits that a ContextModel gives after a context."""
    return logits_after


@pytest.fixture
def request_of() -> Callable[..., SequenceState]:
    """Makes a sequence whose tokens so far are its prompt."""

    def make(tokens: Sequence[int], *, uid: int = 0, seed: int = 7, **params: Any) -> SequenceState:
        return SequenceState(
            uid=uid,
            tokens=list(tokens),
            prompt_length=len(tokens),
            params=SamplingParams(**params),
            seed=seed,
        )

    return make


@pytest.fixture
def one_torch_thread() -> Iterator[None]:
    """Models as small as these spend their time waiting for other threads."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
