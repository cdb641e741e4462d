"""The price of a cycle, learnt from noisy clocks."""

from __future__ import annotations

import numpy as np
import pytest

from slipstream.engine.cost_table import CostTable
from slipstream.engine.running_cost import RunningCost
from slipstream.errors import InvalidInput


def test_a_price_is_learnt_from_times() -> None:
    rng = np.random.default_rng(0)
    cost = RunningCost(lambda rows: 1 + 0.06 * (rows - 1))
    for rows in rng.choice([1, 2, 6, 9], 200):
        cost.observe(int(rows), (0.02 + 0.004 * rows) * rng.lognormal(0, 0.1))
    for rows in (1, 2, 4, 6, 9, 12):
        assert cost.price(rows) == pytest.approx(0.02 + 0.004 * rows, rel=0.08)


def test_sizes_that_were_not_seen_are_priced_by_the_shape() -> None:
    cost = RunningCost(lambda rows: 1 + 0.1 * (rows - 1))
    for _ in range(50):
        cost.observe(5, 0.28)
    assert cost.price(1) == pytest.approx(0.2, rel=0.01)
    assert cost.price(11) == pytest.approx(0.4, rel=0.01)


def test_one_stalled_cycle_does_not_move_the_price_far() -> None:
    cost = RunningCost(lambda rows: 1 + 0.1 * (rows - 1))
    for rows in [1, 5] * 20:
        cost.observe(rows, 0.1 + 0.01 * rows)
    before = cost.price(3)
    cost.observe(5, 60.0)
    assert cost.price(3) < 1.15 * before


def test_a_machine_that_slows_down_is_followed() -> None:
    cost = RunningCost(lambda rows: 1 + 0.1 * (rows - 1))
    for factor in (1.0, 3.0):
        for rows in [1, 5] * 100:
            cost.observe(rows, factor * (0.1 + 0.01 * rows))
    assert cost.price(5) / cost.price(1) == pytest.approx(0.15 / 0.11, rel=0.02)
    assert cost.price(5) == pytest.approx(0.45, rel=0.15)  # ratios settle first, then the level


def test_a_table_is_a_line_between_its_entries_and_beyond() -> None:
    table = CostTable(
        rows=(1, 4, 8), cycle_seconds=(1.0, 1.3, 2.1), depths=(1, 5), draft_seconds=(0.1, 0.5)
    )
    assert [table.cycle(rows) for rows in (1, 2, 4, 6, 8, 10)] == pytest.approx(
        [1.0, 1.1, 1.3, 1.7, 2.1, 2.5]
    )
    assert [table.draft(depth) for depth in (0, 1, 3, 7)] == pytest.approx([0, 0.1, 0.3, 0.7])
    assert CostTable.from_mapping(table.as_dict()) == table


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"rows": (1, 2), "cycle_seconds": (1.0,)}, "one length"),
        ({"rows": (2, 3), "cycle_seconds": (1.0, 1.0)}, "increase from 1"),
        ({"rows": (1, 2), "cycle_seconds": (1.0, 0.5)}, "must not fall"),
        ({"rows": (1,), "cycle_seconds": (float("nan"),)}, "finite"),
        ({"rows": (1,), "cycle_seconds": ("1",)}, "numbers"),
        ({"rows": (), "cycle_seconds": ()}, "positive first entry"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(values: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidInput, match=words):
        CostTable(**values)  # type: ignore[arg-type]


def test_a_table_from_a_file_is_checked() -> None:
    with pytest.raises(InvalidInput, match="fields"):
        CostTable.from_mapping({"rows": [1]})
    with pytest.raises(InvalidInput, match="list of numbers"):
        CostTable.from_mapping(
            {"rows": 1, "cycle_seconds": [1.0], "depths": [], "draft_seconds": []}
        )
