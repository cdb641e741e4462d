"""The bookkeeping that every backend shares: which rows are committed, which pending, and where.

Holds token counts and parents only, no keys and no values: a backend asks the ledger whether a
call is valid and at which position and behind which ancestors each row stands, then moves its own
cache. Rejects a bad call as a whole, before anything has changed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from slipstream.errors import InvalidInput, PromptTooLong
from slipstream.models.base import PREFIX, IntArray, Rows


@dataclass
class _Sequence:
    committed: int = 0
    parents: list[int] = field(default_factory=list)
    depths: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Placement:
    """Where the rows of a call stand.

    Args:
        positions: (R,) position of each row = committed length + depth among pending rows.
        slots: (R,) index of each row among its sequence's pending rows.
    """

    positions: IntArray
    slots: IntArray


class Ledger:
    """Committed lengths and pending ancestry of all open sequences of one model."""

    def __init__(self, *, vocab_size: int, max_context: int) -> None:
        self._vocab_size = vocab_size
        self._max_context = max_context
        self._sequences: dict[int, _Sequence] = {}
        self._next = 0

    def open(self) -> int:
        handle, self._next = self._next, self._next + 1
        self._sequences[handle] = _Sequence()
        return handle

    def close(self, sequence: int) -> None:
        self._get(sequence)
        del self._sequences[sequence]

    def committed(self, sequence: int) -> int:
        """Committed tokens of a sequence."""
        return self._get(sequence).committed

    def pending(self, sequence: int) -> int:
        """Pending rows of a sequence."""
        return len(self._get(sequence).parents)

    def ancestors(self, sequence: int, slot: int) -> list[int]:
        """Pending slots from the prefix down to ``slot``, itself included."""
        parents = self._get(sequence).parents
        path: list[int] = []
        while slot != PREFIX:
            path.append(slot)
            slot = parents[slot]
        return path[::-1]

    def place(self, rows: Rows) -> Placement:
        """Validate a call and append its rows to the pending ones.

        Raises:
            InvalidInput: see :meth:`slipstream.models.base.TargetModel.forward`.
        """
        positions, slots = self.append(rows)
        return Placement(np.asarray(positions, np.int64), np.asarray(slots, np.int64))

    def append(self, rows: Rows) -> tuple[list[int], list[int]]:
        """:meth:`place` for backends that need no arrays: positions and slots as lists."""
        count = len(rows)
        if count == 0:
            raise InvalidInput("a pass needs at least one row")
        if not len(rows.sequences) == len(rows.parents) == count:
            raise InvalidInput("sequences, tokens and parents must have one entry per row")
        if rows.wants_logits is not None and len(rows.wants_logits) != count:
            raise InvalidInput("wants_logits must have one entry per row")
        if rows.vectors is None:
            # Lists throughout: for the few rows of a cycle an array operation costs far more.
            for token in rows.tokens.tolist():
                if not 0 <= token < self._vocab_size:
                    raise InvalidInput(
                        f"token {token} is outside the vocabulary [0, {self._vocab_size})"
                    )

        positions: list[int] = []
        slots: list[int] = []
        new: dict[int, tuple[list[int], list[int]]] = {}
        for row, (handle, parent) in enumerate(
            zip(rows.sequences.tolist(), rows.parents.tolist(), strict=True)
        ):
            sequence = self._get(handle)
            parents, depths = new.setdefault(handle, ([], []))
            before = len(sequence.parents)
            slot = before + len(parents)
            if not PREFIX <= parent < slot:
                raise InvalidInput(f"row {row}: parent {parent} is not an earlier pending row")
            if parent == PREFIX:
                depth = 0
            elif parent < before:
                depth = sequence.depths[parent] + 1
            else:
                depth = depths[parent - before] + 1
            position = sequence.committed + depth
            if position >= self._max_context:
                raise PromptTooLong(
                    f"position {position} is past the model's context of {self._max_context} tokens"
                )
            parents.append(parent)
            depths.append(depth)
            positions.append(position)
            slots.append(slot)
        for handle, (parents, depths) in new.items():
            self._sequences[handle].parents += parents
            self._sequences[handle].depths += depths
        return positions, slots

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep a path of pending rows; see :meth:`TargetModel.commit`."""
        state = self._get(sequence)
        parent = PREFIX
        for slot in path:
            if not 0 <= slot < len(state.parents) or state.parents[slot] != parent:
                raise InvalidInput(f"{list(path)} is not a path of pending rows")
            parent = slot
        state.committed += len(path)
        state.parents.clear()
        state.depths.clear()

    def truncate(self, sequence: int, length: int) -> None:
        """Drop pending rows and committed tokens from ``length`` on."""
        state = self._get(sequence)
        if not 0 <= length <= state.committed:
            raise InvalidInput(
                f"can't truncate to {length}: {state.committed} tokens are committed"
            )
        state.committed = length
        state.parents.clear()
        state.depths.clear()

    def _get(self, sequence: int) -> _Sequence:
        try:
            return self._sequences[sequence]
        except KeyError:
            raise InvalidInput(f"no open sequence {sequence}") from None
