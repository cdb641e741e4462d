"""Text of many cycles with the real noise against the exact law, and what this test can see.

Each seed writes a text with a target whose next token depends on the last one; the counts of tokens
after each context are compared with the law they should have. A wrong law that differs by 0.02 in
total variation is found with probability 0.8; a right one is called wrong with probability 1e-9.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

from slipstream.sampling.noise import ACCEPT, DRAFT, CycleNoise, Noise, Stream
from slipstream.types import Draft, Sampled
from slipstream.verification.registry import get_rule
from tests.exactness.chi_square import FALSE_ALARM, Fit, count_transitions, fit
from tests.exactness.small_laws import Law, Probs, random_law
from tests.exactness.speculation import Shape, chain, generate, tree

SIZE = 3
TARGET = random_law(1, [True] * SIZE, order=1)
OTHER = random_law(2, [True] * SIZE, order=1)
LENGTH = 100
SEEDS = range(390)
FEW_SEEDS = range(50)

RULES: dict[str, Shape] = {
    "rejection": chain(3),
    "block": chain(3),
    "coupled": chain(3),
    "recursive": tree(2, 1),
    "greedy_siblings": tree(2, 1),
}


@cache
def _mixture(context: tuple[int, ...]) -> Probs:
    return 0.5 * TARGET(context) + 0.5 * OTHER(context)


def drafter(context: tuple[int, ...]) -> Probs:
    """Like the target, but not quite: most drafted tokens are accepted, many are not."""
    return _mixture(context[-1:])


def measure(name: str, shape: Shape, seeds: range, q: Law = drafter, **options: Any) -> Fit:
    rule = get_rule(name)
    texts = [generate(rule, TARGET, q, shape, seed, LENGTH, **options) for seed in seeds]
    return fit(count_transitions(texts, 1, SIZE), TARGET)


@pytest.mark.parametrize("name", RULES)
def test_exact_rules_write_the_targets_text(name: str) -> None:
    result = measure(name, RULES[name], SEEDS)
    assert not result.rejected
    assert result.detectable(power=0.8) <= 0.02


def test_the_statistic_has_the_stated_false_alarm_rate() -> None:
    """The bound is far in the tail; its shape is checked where samples reach."""
    rng = np.random.default_rng(0)
    probs = TARGET((0,))
    fits = [fit({(): rng.multinomial(2000, probs)}, lambda _: probs) for _ in range(2000)]
    statistics = np.array([result.statistic for result in fits])
    assert abs(np.mean(statistics) - fits[0].freedom) < 0.2
    assert abs(np.mean(statistics > 5.991) - 0.05) < 0.02
    assert FALSE_ALARM == 1e-9


def test_the_stated_power_is_the_power() -> None:
    """Laws off by 0.02 in every context are found as often as stated, in multinomial samples."""
    rng = np.random.default_rng(1)
    found = 0
    for _ in range(200):
        counts = {}
        for context in [(token,) for token in range(SIZE)]:
            probs = TARGET(context).copy()
            probs[probs.argmax()] -= 0.02
            probs[probs.argmin()] += 0.02
            counts[context] = rng.multinomial(38_600 // SIZE, probs)
        found += fit(counts, TARGET).rejected
    assert found / 200 >= 0.75


# Negative controls: the same test, with fewer seeds, must fail.


@pytest.mark.parametrize("name", ["argmax_match", "typical"])
def test_lossy_rules_fail(name: str) -> None:
    """With a drafter as good as can be, so that much is accepted."""
    assert measure(name, chain(3), FEW_SEEDS, TARGET).rejected


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_receipts_recorded_before_processing_fail(name: str) -> None:
    def unprocessed(draft: Draft) -> Draft:
        receipts = tuple(
            r and Sampled(np.sqrt(r.probs) / np.sqrt(r.probs).sum()) for r in draft.receipts
        )
        return dataclasses.replace(draft, receipts=receipts)

    assert measure(name, chain(3), FEW_SEEDS, tamper=unprocessed).rejected


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_residuals_drawn_from_p_fail(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        f"slipstream.verification.{name}.excess", lambda probs, receipt, token, scale=1.0: probs
    )
    assert measure(name, chain(3), FEW_SEEDS).rejected


@dataclass(frozen=True)
class NoiseByPosition(CycleNoise):
    """Noise that a later cycle at the same position meets again."""

    def draft(self, offset: int, row: int) -> Stream:
        return Stream(self.key, (self.start + offset, 0, DRAFT))

    def accept(self, row: int) -> float:
        return Stream(self.key, (self.start + row, 0, ACCEPT)).uniform()


def by_position(seed: int, start: int) -> NoiseByPosition:
    return NoiseByPosition(Noise(seed).cycle(start).key, start)


def test_block_with_noise_not_keyed_by_cycle_fails() -> None:
    """Redrafted tokens that block verification has looked at before: a small bias, but seen."""
    assert measure("block", chain(4), range(100), OTHER, cycle_noise=by_position).rejected
