"""Shards as batches: conversations packed into rows of equal length, in an order that a seed fixes.

The plan of an epoch follows from lengths, seed and epoch alone, so any batch can be named by
(epoch, index) and a resumed run goes on with the very batch that comes next. Texts stay mapped
files; a batch copies its own rows. Knows no network. B rows, T positions, H hidden, K top.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from slipstream.errors import InvalidInput
from slipstream.training.deduplicate import Seen
from slipstream.training.manifest import DataDirectory, combined
from slipstream.training.networks import Batch
from slipstream.training.shards import Shard, from_bf16, read_shard

Recompute: TypeAlias = Callable[[Sequence[int]], npt.NDArray[np.float32]]
"""(T,) tokens to the target's (T, H) features, where the shards don't hold them."""

_GROUP = 8


@dataclass(frozen=True)
class _Piece:
    """Tokens [start, stop) of a conversation of a shard, at most a row long."""

    shard: int
    conversation: int
    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Corpus:
    """The conversations of data directories, split into training and held-out text.

    Several directories of one target, made with different seeds or from different files, are one
    corpus; a conversation much like one of an earlier directory is left out.

    Args:
        data: opened directories.
        length: tokens in a row T; longer conversations are cut.
        rows: rows in a batch B.
        seed: of the order.
        recompute: needed if the shards hold no features.

    Raises:
        CorruptModel: a shard is damaged.
        InvalidInput: no text, or no way to features.
    """

    def __init__(
        self,
        *data: DataDirectory,
        length: int = 512,
        rows: int = 4,
        seed: int = 0,
        recompute: Recompute | None = None,
    ) -> None:
        prints = [directory.fingerprint for directory in data]
        self.fingerprint = prints[0] if len(prints) == 1 else combined(prints)
        self._hidden = data[0].target.hidden_size
        self._length, self._rows, self._seed = length, rows, seed
        self._recompute = recompute
        self.shards = [read_shard(path) for directory in data for path in directory.shards]
        tops = sorted({shard.top_ids.shape[1] for shard in self.shards})
        if len(tops) > 1:
            raise InvalidInput(
                f"the directories keep {tops[0]} and {tops[-1]} best tokens a position; "
                "they can't be read as one"
            )
        self._repeats = _repeats(self.shards) if len(data) > 1 else None
        where = ", ".join(str(directory.path) for directory in data)
        if recompute is None and any(not len(s.features) and len(s) for s in self.shards):
            raise InvalidInput(f"the shards in {where} hold no features; give the target too")
        if not any(True for _ in self._pieces(range(len(self.shards)), held_out=False)):
            raise InvalidInput(f"{where} holds no text to train on; make data first")

    @property
    def tokens(self) -> int:
        """Tokens of training text."""
        return sum(len(p) for p in self._pieces(range(len(self.shards)), held_out=False))

    def batches(self, epoch: int, start: int = 0) -> Iterator[Batch]:
        """Training batches of an epoch from index ``start`` on."""
        for rows in self._plan(epoch)[start:]:
            yield self._batch(rows)

    def held_out(self, tokens: int) -> list[Batch]:
        """Batches of held-out text, about so many tokens, always the same."""
        pieces = list(self._pieces(range(len(self.shards)), held_out=True))
        np.random.default_rng(self._seed).shuffle(pieces)
        total, some = 0, []
        for piece in pieces:
            if total >= tokens:
                break
            some.append(piece)
            total += len(piece)
        rows = _pack(some, self._length)
        return [
            self._batch(rows[first : first + self._rows])
            for first in range(0, len(rows), self._rows)
        ]

    def _plan(self, epoch: int) -> list[list[list[_Piece]]]:
        draw = np.random.default_rng((self._seed, epoch))
        order = draw.permutation(len(self.shards))
        rows: list[list[_Piece]] = []
        for first in range(0, len(order), _GROUP):
            pieces = list(self._pieces(order[first : first + _GROUP], held_out=False))
            packed = _pack([pieces[i] for i in draw.permutation(len(pieces))], self._length)
            rows += [packed[i] for i in draw.permutation(len(packed))]
        count = max(1, len(rows) // self._rows)  # a last, smaller batch is left out
        return [rows[i * self._rows : (i + 1) * self._rows] for i in range(count)]

    def _pieces(self, shards: Sequence[int] | Any, *, held_out: bool) -> Iterator[_Piece]:
        for index in shards:
            shard = self.shards[index]
            wanted = shard.held_out == held_out
            if self._repeats is not None:
                wanted &= ~self._repeats[index]
            for number in np.flatnonzero(wanted):
                begin, end = shard.offsets[number : number + 2].tolist()
                for start in range(0, end - begin - 1, self._length):
                    stop = min(start + self._length, end - begin)
                    if stop > shard.answer_starts[number]:
                        yield _Piece(int(index), int(number), start, stop)

    def _batch(self, rows: Sequence[Sequence[_Piece]]) -> Batch:
        shape = (len(rows), self._length)
        top = self.shards[0].top_ids.shape[1]
        arrays: dict[str, npt.NDArray[Any]] = {
            "tokens": np.zeros(shape, np.int64),
            "documents": np.full(shape, -1, np.int64),
            "positions": np.zeros(shape, np.int64),
            "features": np.zeros((*shape, self._hidden), np.float32),
            "learn": np.zeros(shape, np.bool_),
            "temperatures": np.zeros(shape, np.float32),
            "top_ids": np.zeros((*shape, top), np.int64),
            "normalisers": np.zeros(shape, np.float32),
        }
        for row, pieces in enumerate(rows):
            at = 0
            for number, piece in enumerate(pieces):
                here = (row, slice(at, at + len(piece)))
                for name, values in self._read(piece).items():
                    arrays[name][here] = values
                arrays["documents"][here] = number
                at += len(piece)
        return Batch(**{name: torch.from_numpy(array) for name, array in arrays.items()})

    def _read(self, piece: _Piece) -> dict[str, Any]:
        shard = self.shards[piece.shard]
        first, end = shard.offsets[piece.conversation : piece.conversation + 2].tolist()
        begin, stop = first + piece.start, first + piece.stop
        positions = np.arange(piece.start, piece.stop)
        answer = shard.answer_starts[piece.conversation]
        return {
            "tokens": shard.tokens[begin:stop],
            "positions": positions - piece.start,
            "features": self._features(shard, first, begin, stop),
            "learn": (positions >= answer - 1) & (positions < end - first - 1),
            "temperatures": shard.temperatures[piece.conversation],
            "top_ids": shard.top_ids[begin:stop],
            "normalisers": shard.normalisers[begin:stop],
        }

    def _features(self, shard: Shard, first: int, begin: int, stop: int) -> Any:
        if len(shard.features):
            return from_bf16(shard.features[begin:stop])
        assert self._recompute is not None
        return self._recompute(shard.tokens[first:stop].tolist())[begin - first :]


def _repeats(shards: Sequence[Shard]) -> list[npt.NDArray[np.bool_]]:
    """For each shard, which of its conversations are much like an earlier one."""
    seen = Seen()
    return [np.array([not seen.add(entries) for entries in s.signatures], bool) for s in shards]


def _pack(pieces: Sequence[_Piece], length: int) -> list[list[_Piece]]:
    """First fit, longest first: rows of at most ``length`` tokens."""
    rows: list[list[_Piece]] = []
    space: list[int] = []
    open_from = 0
    for piece in sorted(pieces, key=len, reverse=True):
        for row in range(open_from, len(rows)):
            if space[row] >= len(piece):
                rows[row].append(piece)
                space[row] -= len(piece)
                break
        else:
            rows.append([piece])
            space.append(length - len(piece))
        while open_from < len(rows) and space[open_from] < 16:
            open_from += 1
    return rows
