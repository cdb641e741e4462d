"""The slot table of the Hugging Face backend: nothing moves, holes are filled, nothing grows."""

from __future__ import annotations

import random

import numpy as np

from slipstream.models.base import PREFIX, Rows
from slipstream.models.hf_slots import Layout, Slots
from slipstream.models.ledger import Ledger


class Table:
    """Slots and ledger together, as the backend keeps them."""

    def __init__(self) -> None:
        self.slots, self.ledger = Slots(), Ledger(vocab_size=10, max_context=10_000)

    def open(self) -> int:
        sequence = self.ledger.open()
        self.slots.open(sequence)
        return sequence

    def feed(self, sequence: int, parents: list[int]) -> Layout:
        count = len(parents)
        rows = Rows(np.full(count, sequence), np.zeros(count, np.int64), np.array(parents))
        return self.slots.place(rows, self.ledger.place(rows), self.ledger)

    def commit(self, sequence: int, path: list[int]) -> None:
        self.ledger.commit(sequence, path)
        self.slots.commit(sequence, path)


def test_a_row_sees_its_prefix_its_ancestors_and_itself() -> None:
    table = Table()
    sequence = table.open()
    table.feed(sequence, [PREFIX, 0, 1])
    table.commit(sequence, [0, 1, 2])
    first = table.feed(sequence, [PREFIX, 0])
    second = table.feed(sequence, [0, 1, 2, PREFIX])
    assert first.slots.tolist() == [3, 4]
    assert second.slots.tolist() == [5, 6, 7, 8]
    seen = [np.flatnonzero(row).tolist() for row in second.visible[0]]
    assert seen == [[0, 1, 2, 3, 5], [0, 1, 2, 3, 4, 6], [0, 1, 2, 3, 5, 7], [0, 1, 2, 8]]


def test_rejected_slots_are_used_again_and_kept_ones_never_move() -> None:
    table, rng = Table(), random.Random(2)
    sequence = table.open()
    kept: list[int] = []
    for _ in range(300):
        count = rng.randint(1, 6)
        layout = table.feed(sequence, [rng.randint(PREFIX, node - 1) for node in range(count)])
        assert not set(kept) & set(layout.slots.tolist())
        assert layout.span <= len(kept) + 2 * 6  # as dense as it can be, give or take a draft
        path = table.ledger.ancestors(sequence, rng.randint(PREFIX, count - 1))
        kept += layout.slots[path].tolist()
        table.commit(sequence, path)
    last = table.feed(sequence, [PREFIX])
    assert sorted([*kept, *last.slots.tolist()]) == np.flatnonzero(last.visible[0, 0]).tolist()


def test_lines_stay_without_a_gap() -> None:
    table = Table()
    a, b, c = (table.open() for _ in range(3))
    assert table.slots.close(a) == (0, 2)  # c moves to line 0
    assert table.feed(c, [PREFIX]).lines.tolist() == [0]
    assert table.feed(b, [PREFIX]).lines.tolist() == [1]
    assert table.slots.close(b) == (1, 1)
    assert table.feed(table_open := table.open(), [PREFIX]).lines.tolist() == [1]
    assert table.slots.close(table_open) == (1, 1)
    assert table.slots.close(c) == (0, 0)


def test_truncation_frees_the_tail() -> None:
    table = Table()
    sequence = table.open()
    table.feed(sequence, [PREFIX, *range(9)])
    table.commit(sequence, list(range(10)))
    table.feed(sequence, [PREFIX, 0])
    table.ledger.truncate(sequence, 4)
    table.slots.truncate(sequence, 4)
    layout = table.feed(sequence, [PREFIX, 0])
    assert layout.slots.tolist() == [4, 5]
    assert np.flatnonzero(layout.visible[0, 1]).tolist() == [0, 1, 2, 3, 4, 5]
