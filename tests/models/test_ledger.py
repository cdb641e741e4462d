"""The ledger places rows behind their ancestors and refuses bad calls as a whole."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.errors import InvalidInput, PromptTooLong
from slipstream.models.base import PREFIX, Rows
from slipstream.models.ledger import Ledger


def rows(sequences: list[int], tokens: list[int], parents: list[int]) -> Rows:
    return Rows(
        np.asarray(sequences, np.int64), np.asarray(tokens, np.int64), np.asarray(parents, np.int64)
    )


@pytest.fixture
def ledger() -> Ledger:
    return Ledger(vocab_size=10, max_context=8)


def test_rows_stand_behind_the_prefix_and_their_ancestors(ledger: Ledger) -> None:
    handle = ledger.open()
    ledger.place(Rows.chain(handle, [1, 2]))
    ledger.commit(handle, [0, 1])
    placed = ledger.place(rows([handle] * 4, [3, 4, 5, 6], [PREFIX, 0, 0, 2]))
    assert placed.positions.tolist() == [2, 3, 3, 4]
    assert placed.slots.tolist() == [0, 1, 2, 3]
    later = ledger.place(rows([handle], [7], [3]))
    assert later.positions.tolist() == [5]
    assert ledger.ancestors(handle, 4) == [0, 2, 3, 4]
    ledger.commit(handle, [0, 2, 3, 4])
    assert ledger.committed(handle) == 6
    assert ledger.pending(handle) == 0


def test_sequences_count_for_themselves(ledger: Ledger) -> None:
    first, second = ledger.open(), ledger.open()
    placed = ledger.place(rows([second, first, second], [1, 1, 1], [PREFIX, PREFIX, 0]))
    assert placed.positions.tolist() == [0, 0, 1]
    assert placed.slots.tolist() == [0, 0, 1]
    ledger.close(first)
    with pytest.raises(InvalidInput, match="no open sequence"):
        ledger.committed(first)
    assert ledger.pending(second) == 2


@pytest.mark.parametrize(
    ("tokens", "parents", "error"),
    [
        ([10], [PREFIX], InvalidInput),
        ([-1], [PREFIX], InvalidInput),
        ([1], [0], InvalidInput),
        ([1, 1], [PREFIX, 1], InvalidInput),
        ([1], [-2], InvalidInput),
        ([], [], InvalidInput),
        ([1] * 9, list(range(-1, 8)), PromptTooLong),
    ],
)
def test_a_bad_call_is_refused_and_changes_nothing(
    ledger: Ledger, tokens: list[int], parents: list[int], error: type[Exception]
) -> None:
    handle = ledger.open()
    with pytest.raises(error):
        ledger.place(rows([handle] * len(tokens), tokens, parents))
    assert ledger.pending(handle) == 0


@pytest.mark.parametrize("path", [[1], [0, 2, 3], [0, 0], [5], [0, 3]])
def test_a_commit_takes_a_path_from_the_prefix_and_nothing_else(
    ledger: Ledger, path: list[int]
) -> None:
    handle = ledger.open()
    ledger.place(rows([handle] * 4, [1, 2, 3, 4], [PREFIX, 0, 0, 1]))
    with pytest.raises(InvalidInput, match="not a path"):
        ledger.commit(handle, path)


def test_an_empty_path_drops_what_is_pending(ledger: Ledger) -> None:
    handle = ledger.open()
    ledger.place(Rows.chain(handle, [1, 2]))
    ledger.commit(handle, [])
    assert ledger.committed(handle) == 0
    assert ledger.pending(handle) == 0


def test_truncation_never_invents_tokens(ledger: Ledger) -> None:
    handle = ledger.open()
    ledger.place(Rows.chain(handle, [1, 2, 3]))
    ledger.commit(handle, [0, 1, 2])
    ledger.truncate(handle, 1)
    assert ledger.committed(handle) == 1
    with pytest.raises(InvalidInput, match="can't truncate"):
        ledger.truncate(handle, 2)
