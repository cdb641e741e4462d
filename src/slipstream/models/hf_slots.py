"""Where every token's keys lie in the Hugging Face backend's cache, and which row may see which.

The cache is a table: a line per open sequence, a slot per token. Attention doesn't care about the
order of its keys, so a row's keys stay in the slot they were computed into: committing a path keeps
its slots, drops the others for reuse, and moves nothing. The mask is what makes the order.

Knows no tensors of the model. Shape letters: R rows, B sequences of a pass, T rows of its longest
sequence, S slots shown.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from slipstream.models.base import PREFIX, IntArray, Rows
from slipstream.models.ledger import Ledger, Placement

_BLOCK = 256
"""Masks and tables grow by doubling from this many slots."""


def room(count: int) -> int:
    """Slots to reserve for ``count``: a power of two, so that growing is rare."""
    return max(_BLOCK, 1 << (count - 1).bit_length())


@dataclass(frozen=True)
class Layout:
    """How one pass is laid out as a padded batch over the table.

    Args:
        lines: (B,) table line of each sequence, ascending.
        span: S, slots from the left that hold everything visible.
        batch: (R,) which of the B sequences a row belongs to.
        column: (R,) which of its sequence's rows it is, below T.
        slots: (R,) where the row's keys go.
        visible: (B, T, S) bool; a padding row sees slot 0, so that its softmax is defined.
    """

    lines: IntArray
    span: int
    batch: IntArray
    column: IntArray
    slots: IntArray
    visible: npt.NDArray[np.bool_]


@dataclass
class _Line:
    number: int
    kept: list[int] = field(default_factory=list)  # slots of the committed tokens, in order
    pending: list[int] = field(default_factory=list)
    free: list[int] = field(default_factory=list)  # a heap: the lowest hole is filled first
    high: int = 0  # slots in use or free, from the left
    committed: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(_BLOCK, np.bool_))

    def take(self) -> int:
        if self.free:
            slot = heapq.heappop(self.free)
        else:
            slot, self.high = self.high, self.high + 1
            if self.high > len(self.committed):
                self.committed = np.pad(self.committed, (0, room(self.high) - len(self.committed)))
        self.pending.append(slot)
        return slot

    def drop(self, slots: Sequence[int]) -> None:
        for slot in slots:
            heapq.heappush(self.free, slot)


class Slots:
    """Table lines and slots of all open sequences. Lines 0..n-1 are in use, without a gap."""

    def __init__(self) -> None:
        self._lines: dict[int, _Line] = {}

    def __len__(self) -> int:
        return len(self._lines)

    def open(self, sequence: int) -> None:
        """Give a sequence the next line."""
        self._lines[sequence] = _Line(len(self._lines))

    def close(self, sequence: int) -> tuple[int, int]:
        """Forget a sequence; the last line moves to its place. Returns (its line, last line)."""
        gap = self._lines.pop(sequence).number
        last = len(self._lines)
        for line in self._lines.values():
            if line.number == last:
                line.number = gap
        return gap, last

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep the slots of a path of pending rows, free the others."""
        line = self._lines[sequence]
        kept = [line.pending[i] for i in path]
        line.kept += kept
        line.committed[kept] = True
        line.drop(list(set(line.pending).difference(kept)))
        line.pending.clear()

    def truncate(self, sequence: int, length: int) -> None:
        """Free pending slots and those of committed tokens from ``length`` on."""
        line = self._lines[sequence]
        gone = line.kept[length:]
        line.committed[gone] = False
        line.drop(gone + line.pending)
        line.pending.clear()
        del line.kept[length:]

    def place(self, rows: Rows, placement: Placement, ledger: Ledger) -> Layout:
        """Lay out rows that the ledger has accepted, and give each a slot."""
        handles = sorted(set(rows.sequences.tolist()), key=lambda h: self._lines[h].number)
        lines = [self._lines[handle] for handle in handles]
        index = {handle: i for i, handle in enumerate(handles)}
        batch = np.array([index[handle] for handle in rows.sequences.tolist()], np.int64)
        column = np.empty(len(rows), np.int64)
        for i in range(len(lines)):
            mine = batch == i
            column[mine] = np.arange(np.count_nonzero(mine))
        before = [len(line.pending) for line in lines]
        slots = np.array([lines[b].take() for b in batch.tolist()], np.int64)
        span = max(line.high for line in lines)

        visible = np.zeros((len(lines), int(column.max()) + 1, span), np.bool_)
        visible[:, :, 0] = True
        for row, (b, t, parent) in enumerate(
            zip(batch.tolist(), column.tolist(), rows.parents.tolist(), strict=True)
        ):
            line, seen = lines[b], visible[b, t]
            if parent >= before[b]:  # a row of this pass, already done
                seen[:] = visible[b, parent - before[b]]
            else:
                width = min(span, len(line.committed))
                seen[:width] = line.committed[:width]
                if parent != PREFIX:
                    seen[[line.pending[i] for i in ledger.ancestors(handles[b], parent)]] = True
            seen[slots[row]] = True
        numbers = np.array([line.number for line in lines], np.int64)
        return Layout(numbers, span, batch, column, slots, visible)
