"""Timing cycles with replayed drafts, on a target whose price is known."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from slipstream import Engine
from slipstream.drafters.base import Observation
from slipstream.models.base import NO_FEATURES, FeatureRequest, ForwardOutput, Rows
from slipstream.models.tokenizer import Tokenizer
from slipstream.profiling.cost import (
    cost_table,
    fit,
    measure_cycles,
    measure_drafting,
    measure_emission,
)
from slipstream.profiling.cost_cache import cost_file, load_costs, save_costs
from slipstream.profiling.engines import beside
from tests.engine.table_model import TableModel
from tests.profiling.conftest import Oracle

BASE, SLOPE = 2e-3, 0.5e-3


class Clock:
    """Time that passes only when a target says so: a busy machine changes nothing."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("slipstream.profiling.timing.perf_counter", clock)
    return clock


class Priced(TableModel):
    """A table that takes its time by rows, every fifth time ten times as long."""

    clock: Clock
    passes = 0

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        self.passes += 1
        stall = 10 if self.passes % 5 == 0 else 1
        self.clock.now += stall * (BASE + SLOPE * len(rows))
        return super().forward(rows, features)


@pytest.fixture
def priced(byte_tokenizer: Tokenizer, clock: Clock) -> Engine:
    model = Priced(256, seed=3, spread=2.0, max_context=600)
    model.clock = clock
    return Engine(model, tokenizer=byte_tokenizer, drafter=Oracle(model), k=4)


def test_the_cost_curve_is_the_targets(priced: Engine) -> None:
    cycles = measure_cycles(priced, context=40, rows=(1, 4, 9), rounds=7)
    assert cycles.rows == (1, 4, 9) and cycles.count >= 4
    assert cycles.seconds == pytest.approx([BASE + SLOPE * rows for rows in (1, 4, 9)])
    assert cycles.at(20) > cycles.seconds[-1]
    table = cost_table(cycles)
    assert table.cycle(4) == cycles.seconds[1]


def test_a_batch_is_measured_by_all_its_rows(priced: Engine) -> None:
    cycles = measure_cycles(priced, context=10, rows=(1, 3), rounds=2, batch=3)
    assert cycles.rows == (3, 9) and cycles.batch == 3


def test_a_short_context_is_enough(byte_tokenizer: Tokenizer) -> None:
    model = TableModel(256, seed=3, max_context=80)
    engine = Engine(model, tokenizer=byte_tokenizer, drafter="none", k=0)
    cycles = measure_cycles(engine, context=500, rows=(1, 4), rounds=3)
    assert cycles.context < 80 and len(cycles.seconds) == 2


def test_what_an_emitted_token_adds_is_small_and_not_negative(engine: Engine) -> None:
    assert 0 <= measure_emission(engine, context=20) < 5e-3


def test_drafting_costs_do_not_fall_with_depth(engine: Engine) -> None:
    drafting = measure_drafting(engine, context=20, depths=(1, 4, 8))
    assert all(a <= b for a, b in pairwise(drafting.seconds))
    assert drafting.at(0) == 0 < drafting.at(2) <= drafting.at(12)


def test_a_fit_never_falls_and_its_interval_covers_it() -> None:
    rng = np.random.default_rng(0)
    samples = [rng.lognormal(mean, 0.2, 15).tolist() for mean in (0.0, 0.1, 0.05, 0.5)]
    fitted, (low, high) = fit(samples)
    assert (np.diff(fitted) >= 0).all()
    assert (low <= fitted).all() and (fitted <= high).all()


def test_costs_are_kept_by_fingerprint(
    priced: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    path = cost_file(priced, 100)
    assert load_costs(path) is None
    cycles = measure_cycles(priced, context=20, rows=(1, 2), rounds=2)
    save_costs(path, cycles, 1e-4)
    assert load_costs(path) == (cycles, 1e-4)
    assert cost_file(priced, 120) == path != cost_file(priced, 300)
    path.write_text("damaged")
    assert load_costs(path) is None


def test_a_stall_while_drafting_is_not_what_drafting_costs(priced: Engine) -> None:
    class Stalling(Oracle):
        calls = 0

        def observe(self, observations: Sequence[Observation]) -> None:
            self.calls += 1
            priced.model.clock.now += 100.0 if self.calls == 3 else 1e-3

    engine = beside(priced, drafter=Stalling(priced.model), k=4)
    drafting = measure_drafting(engine, context=20, depths=(1,), tokens=12)
    assert drafting.seconds[0] == pytest.approx(1e-3)
