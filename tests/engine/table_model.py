"""A target whose logits are a table: exact, fast, and its own law can be written down.

The next token's logits depend on the last token and a little on the one before. It keeps the
protocol of real models, cache and all, so everything above the model is the real thing.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from slipstream.models.base import (
    NO_FEATURES,
    PREFIX,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    ModelInfo,
    Rows,
)
from slipstream.models.ledger import Ledger

NO_TOKEN = -1
CLASSES = 4


class TableModel:
    """A target over ``size`` tokens.

    Args:
        size: vocabulary.
        seed: of the table.
        spread: standard deviation of the logits.
        max_context: most tokens of a sequence.
    """

    def __init__(
        self, size: int, *, seed: int, spread: float = 1.0, max_context: int = 4096
    ) -> None:
        rng = np.random.default_rng(seed)
        self.table = rng.normal(0.0, spread, (CLASSES, size, size)).astype(np.float32)
        self.info = ModelInfo(
            name=f"table-{seed}",
            vocab_size=size,
            hidden_size=1,
            num_layers=1,
            max_context=max_context,
            fingerprint=f"table-{size}-{seed}",
        )
        self.capabilities = Capabilities(bit_exact=True)
        self.ledger = Ledger(vocab_size=size, max_context=max_context)
        self.cached: dict[int, list[int]] = {}
        self.pending: dict[int, list[int]] = {}
        self.passes = 0
        self.rows = 0

    def logits(self, before: int, last: int) -> npt.NDArray[np.float32]:
        """The law itself: logits after the tokens ``before, last``."""
        return np.asarray(self.table[before % CLASSES, last])

    def open(self) -> int:
        handle = self.ledger.open()
        self.cached[handle], self.pending[handle] = [], []
        return handle

    def close(self, sequence: int) -> None:
        self.ledger.close(sequence)
        del self.cached[sequence], self.pending[sequence]

    def length(self, sequence: int) -> int:
        return self.ledger.committed(sequence)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        self.ledger.place(Rows.chain(sequence, tokens))
        self.ledger.commit(sequence, range(len(tokens)))
        self.cached[sequence] += tokens
        return ForwardOutput(logits=np.empty((0, self.info.vocab_size), np.float32))

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        placement = self.ledger.place(rows)
        self.passes += 1
        self.rows += len(rows)
        logits = np.empty((len(rows), self.info.vocab_size), np.float32)
        for row, (sequence, token, parent) in enumerate(
            zip(rows.sequences.tolist(), rows.tokens.tolist(), rows.parents.tolist(), strict=True)
        ):
            assert placement.slots[row] == len(self.pending[sequence])
            if parent == PREFIX:
                before = self.cached[sequence][-1] if self.cached[sequence] else NO_TOKEN
            else:
                before = self.pending[sequence][parent]
            self.pending[sequence].append(token)
            logits[row] = self.logits(before, token)
        return ForwardOutput(
            logits=logits if rows.wants_logits is None else logits[rows.wants_logits]
        )

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self.ledger.commit(sequence, path)
        self.cached[sequence] += [self.pending[sequence][slot] for slot in path]
        self.pending[sequence] = []

    def truncate(self, sequence: int, length: int) -> None:
        self.ledger.truncate(sequence, length)
        del self.cached[sequence][length:]
        self.pending[sequence] = []
