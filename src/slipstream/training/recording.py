"""A target that remembers what it thought: features and best tokens of every committed row.

Generation computes them anyway, so keeping them costs a copy, where training would have to run the
target again. Wraps any :class:`TargetModel` and passes everything through; knows no drafter and
no engine. Records are handed over when a sequence is closed, in the order in which sequences were
opened. T committed tokens, H hidden, K top, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt

from slipstream.models.base import NO_FEATURES, FeatureRequest, ForwardOutput, Rows, TargetModel
from slipstream.training.shards import to_bf16
from slipstream.types import Array


@dataclass(frozen=True)
class Record:
    """What a sequence's tokens were and what the target made of them, row t after token t.

    Args:
        tokens: (T,) int32 committed tokens; a request's newest token was never fed.
        features: (T, H) bfloat16 as uint16.
        top_ids: (T, K) int32; zero where no logits were computed (the prompt).
        normalisers: (T,) float32 logsumexp of the logits; zero where none were computed.
    """

    tokens: npt.NDArray[np.int32]
    features: npt.NDArray[np.uint16]
    top_ids: npt.NDArray[np.int32]
    normalisers: npt.NDArray[np.float32]


@dataclass
class _Tape:
    committed: list[Record] = field(default_factory=list)
    pending: list[Record] = field(default_factory=list)


class RecordingTarget:
    """See the module's docstring.

    Args:
        inner: the model that does the work.
        top: how many best tokens to keep per row.
        keep_features: False records tokens and best tokens only.

    Attributes:
        recording: False lets sequences that are opened meanwhile pass without a record.
    """

    def __init__(self, inner: TargetModel, *, top: int, keep_features: bool = True) -> None:
        self._inner = inner
        self._top = min(top, inner.info.vocab_size)
        self._keep = keep_features
        self._tapes: dict[int, _Tape] = {}
        self._opened: list[int] = []
        self.recording = True
        self._closed: dict[int, Record] = {}
        self.info = inner.info
        self.capabilities = inner.capabilities
        self.length = inner.length

    def take(self) -> list[Record]:
        """The records of all sequences closed since the last call, in order of opening."""
        records = [self._closed.pop(handle) for handle in self._opened if handle in self._closed]
        self._opened = [handle for handle in self._opened if handle in self._tapes]
        return records

    def open(self) -> int:
        handle = self._inner.open()
        if self.recording:
            self._tapes[handle] = _Tape()
            self._opened.append(handle)
        return handle

    def close(self, sequence: int) -> None:
        self._inner.close(sequence)
        if sequence in self._tapes:
            self._closed[sequence] = self._joined(self._tapes.pop(sequence).committed)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        tape = self._tapes.get(sequence)
        if tape is None:
            return self._inner.prefill(sequence, tokens, features)
        output = self._inner.prefill(sequence, tokens, replace(features, last=True))
        tape.pending.clear()
        tape.committed.append(self._silent(np.asarray(tokens, np.int32), output.features))
        return output

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        if not self._tapes:
            return self._inner.forward(rows, features)
        output = self._inner.forward(rows, replace(features, last=True))
        hidden = self._bits(output.features)
        wanted = np.ones(len(rows), bool) if rows.wants_logits is None else rows.wants_logits
        top_ids, normalisers = (
            np.zeros((len(rows), self._top), np.int32),
            np.zeros(len(rows), np.float32),
        )
        top_ids[wanted], normalisers[wanted] = summary(_numpy(output.logits), self._top)
        tokens = rows.tokens.astype(np.int32)
        for row, handle in enumerate(rows.sequences.tolist()):
            one = slice(row, row + 1)
            if handle in self._tapes:
                self._tapes[handle].pending.append(
                    Record(tokens[one], hidden[one], top_ids[one], normalisers[one])
                )
        return output

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self._inner.commit(sequence, path)
        if tape := self._tapes.get(sequence):
            tape.committed += [tape.pending[row] for row in path]
            tape.pending.clear()

    def truncate(self, sequence: int, length: int) -> None:
        self._inner.truncate(sequence, length)
        if tape := self._tapes.get(sequence):
            whole = self._joined(tape.committed)
            tape.committed = [
                Record(
                    whole.tokens[:length],
                    whole.features[:length],
                    whole.top_ids[:length],
                    whole.normalisers[:length],
                )
            ]
            tape.pending.clear()

    def _bits(self, features: Array) -> npt.NDArray[np.uint16]:
        values = _numpy(features)
        return to_bf16(values if self._keep else values[:, :0])

    def _silent(self, tokens: npt.NDArray[np.int32], features: Array) -> Record:
        count = len(tokens)
        return Record(
            tokens,
            self._bits(features),
            np.zeros((count, self._top), np.int32),
            np.zeros(count, np.float32),
        )

    def _joined(self, parts: list[Record]) -> Record:
        width = self.info.hidden_size if self._keep else 0
        nothing = self._silent(np.empty(0, np.int32), np.empty((0, width), np.float32))
        everything = [nothing, *parts]
        return Record(
            np.concatenate([part.tokens for part in everything]),
            np.concatenate([part.features for part in everything]),
            np.concatenate([part.top_ids for part in everything]),
            np.concatenate([part.normalisers for part in everything]),
        )


def record_text(target: RecordingTarget, tokens: Sequence[int], answer_start: int) -> None:
    """Feed a given text as if the target had written its answer; ends up in ``target.take``."""
    handle = target.open()
    try:
        fed = tokens[:-1]
        if answer_start > 1:
            target.prefill(handle, fed[: answer_start - 1])
        for start in range(max(answer_start - 1, 0), len(fed), 64):
            chunk = fed[start : start + 64]
            target.forward(Rows.chain(handle, chunk))
            target.commit(handle, range(len(chunk)))
    finally:
        target.close(handle)


def summary(
    logits_RV: npt.NDArray[np.float32], top: int
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.float32]]:
    """(R, top) ids of the largest logits, best first, ties to the lowest id; (R,) logsumexp."""
    ids = np.zeros((len(logits_RV), top), np.int32)
    normalisers = np.zeros(len(logits_RV), np.float32)
    for row, logits in enumerate(logits_RV):
        largest = logits.max()
        normalisers[row] = largest + np.log(np.exp(logits - largest).sum())
        # Nearly always few logits are within reach of the largest; sort those alone.
        reach = 8.0
        while len(near := np.flatnonzero(logits >= largest - reach)) < top:
            reach *= 2
        ids[row] = near[np.argsort(-logits[near], kind="stable")[:top]]
    return ids, normalisers


def _numpy(values: Array) -> npt.NDArray[np.float32]:
    if hasattr(values, "cpu"):  # a torch tensor, on whatever device
        values = values.detach().float().cpu()
    return np.asarray(values, np.float32)
