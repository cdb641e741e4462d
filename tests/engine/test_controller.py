"""The adaptive controller against a simulator whose acceptances and costs are known.

The simulator plays target, drafter and clock; the controller sees what it sees in the loop: the
verdict's alphas and coin flips, and noisy times. Rates are of expected tokens and noiseless
seconds, so that a comparison is not a matter of luck.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from typing import TypeVar

import numpy as np
import pytest

from slipstream.config import SamplingParams
from slipstream.engine.adaptive import DEEPEST, PINNED, AdaptiveDepth
from slipstream.engine.controller import Controller, FixedDepth
from slipstream.engine.cost_table import CostTable
from slipstream.engine.request import Request
from slipstream.engine.stats import CycleTimes
from slipstream.types import Draft, PointMass, SequenceState, Verdict
from tests.engine.conftest import make_byte_tokenizer

TOKENIZER = make_byte_tokenizer()
UIDS = count()
CYCLES = 1500
DEPTHS = (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 20, 26, 32)


@dataclass
class World:
    """What is true, and what the controller can't see.

    Args:
        alphas: acceptance by depth, the last one for all deeper ones.
        pass_seconds: of a target pass by its rows.
        draft_seconds: of a drafter step.
        catch_up: seconds that each cycle without a draft adds to the next draft.
        length: draws how long a draft can be at most; None drafts as deep as asked.
        alpha_spread: spread of the alphas that verdicts report around their mean.
        clock_noise: spread of measured times.
        seed: of the dice.
    """

    alphas: Sequence[float]
    pass_seconds: Callable[[int], float] = lambda rows: 1 + 0.05 * (rows - 1)
    draft_seconds: float = 0.0
    catch_up: float = 0.0
    length: Callable[[np.random.Generator], int] | None = None
    alpha_spread: float = 0.15
    clock_noise: float = 0.1
    seed: int = 5

    def __post_init__(self) -> None:
        rng = np.random.default_rng(self.seed)
        means = np.array([*self.alphas, *[self.alphas[-1]] * DEEPEST])[:DEEPEST]
        self.tokens = [1.0, *(1 + np.cumprod(means).cumsum())]  # expected, by depth
        # A beta law around the mean: every text has easy and hard places.
        strength = np.maximum(means * (1 - means) / self.alpha_spread**2 - 1, 1e-3)
        size = (256, DEEPEST)
        self._dice = drawn_ahead(
            lambda: zip(
                rng.beta(means * strength, (1 - means) * strength, size).tolist(),
                rng.random(size).tolist(),
                strict=True,
            )
        )
        self.noise = drawn_ahead(lambda: np.exp(rng.normal(0, self.clock_noise, (256, 2))).tolist())
        self._lengths = np.random.default_rng(self.seed + 1)
        self._drafts = [Draft.chain([0] * n, [PointMass()] * n) for n in range(DEEPEST + 1)]

    def draft(self, asked: int) -> Draft:
        longest = DEEPEST if self.length is None else self.length(self._lengths)
        return self._drafts[min(asked, longest)]

    def verdict(self, draft: Draft) -> Verdict:
        alphas, flips = next(self._dice)
        for depth in range(len(draft)):
            if flips[depth] >= alphas[depth]:
                return Verdict(tuple(range(depth)), 0, "residual", tuple(alphas[: depth + 1]))
        return Verdict(tuple(range(len(draft))), 0, "bonus", tuple(alphas[: len(draft)]))


Drawn = TypeVar("Drawn")


def drawn_ahead(draw: Callable[[], Iterable[Drawn]]) -> Iterator[Drawn]:
    """Dice, many at a time: one by one they would take longer than what is tested."""
    while True:
        yield from draw()


def request(*, seed: int | None = None, temperature: float = 0.0) -> Request:
    params = SamplingParams(max_tokens=10**9, seed=seed, temperature=temperature)
    return Request(
        SequenceState(next(UIDS), [0], 1, params, seed or 0), TOKENIZER, frozenset(), 10**9
    )


def copies(world: World) -> list[World]:
    """The same world, with its dice as they were."""
    return [replace(world)]


def run(worlds: Sequence[World], controller: Controller, cycles: int) -> tuple[float, float]:
    """Tokens and seconds of some cycles; request i lives in world i, the first has the clock."""
    clock = worlds[0]
    requests = [request() for _ in worlds]
    tokens = seconds = 0.0
    idle = 0
    for _ in range(cycles):
        budgets = controller.budgets(requests)
        drafts = [w.draft(b.depth) for w, b in zip(worlds, budgets, strict=True)]
        verdicts = [w.verdict(d) for w, d in zip(worlds, drafts, strict=True)]
        tokens += sum(w.tokens[len(d)] for w, d in zip(worlds, drafts, strict=True))
        drafting = max(budget.depth for budget in budgets) * clock.draft_seconds
        if drafting:
            drafting += idle * clock.catch_up
        idle = 0 if drafting else idle + 1
        target = clock.pass_seconds(sum(len(draft) + 1 for draft in drafts))
        seconds += drafting + target
        noise = next(clock.noise)
        controller.update(
            requests,
            drafts,
            verdicts,
            CycleTimes(
                draft=drafting * noise[0], target=target * noise[1], rest=0.0, batch=len(worlds)
            ),
        )
    return tokens, seconds


def rate(worlds: Sequence[World], controller: Controller, cycles: int) -> float:
    tokens, seconds = run(worlds, controller, cycles)
    return tokens / seconds


def best_fixed(make: Callable[[], Sequence[World]]) -> tuple[float, int]:
    """The rate of the best fixed depth, and which it is; luck only in how long drafts are."""
    cycles = CYCLES if any(world.length for world in make()) else 1
    return max((rate(make(), FixedDepth(k), cycles), k) for k in DEPTHS)


def steps(rows: int) -> float:
    """A machine that works in tiles of eight rows."""
    return 1 + 0.5 * ((rows - 1) // 8)


def lookup(rng: np.random.Generator) -> int:
    """Half of the time nothing matches, else a short or a long match."""
    return int(rng.choice([0, 1, 3, 32], p=[0.5, 0.2, 0.15, 0.15]))


SCENARIOS: dict[str, Callable[[], World]] = {
    "a good drafter": lambda: World([0.8], draft_seconds=0.05),
    "an excellent drafter on a flat machine": lambda: World(
        [0.95], lambda rows: 1.0 + 0.001 * rows
    ),
    "a mediocre drafter": lambda: World([0.5], draft_seconds=0.1),
    "a drafter at its break-even": lambda: World([0.3], draft_seconds=0.25),
    "a bad drafter": lambda: World([0.1], draft_seconds=0.2),
    "a bad and dear drafter": lambda: World([0.05], draft_seconds=1.0),
    "acceptance that falls with depth": lambda: World([0.9, 0.8, 0.6, 0.3, 0.1]),
    "acceptance that rises with depth": lambda: World([0.5, 0.85, 0.95]),
    "tiles of eight rows": lambda: World([0.8], steps),
    "rows at full price": lambda: World([0.6], lambda rows: 0.2 + 0.8 * rows),
    "lookup": lambda: World([0.6, 0.8, 0.9], length=lookup),
    "lookup that never hits": lambda: World([0.5], length=lambda rng: 0),
    "all or nothing": lambda: World([0.6], draft_seconds=0.05, alpha_spread=0.45),
    "a loud clock": lambda: World([0.7], draft_seconds=0.1, clock_noise=0.3),
}


@pytest.mark.parametrize("name", SCENARIOS)
def test_it_comes_within_3_percent_of_the_best_fixed_depth(name: str) -> None:
    best, k = best_fixed(lambda: [SCENARIOS[name]()])
    plain = rate([SCENARIOS[name]()], FixedDepth(0), 10)
    reached = rate([SCENARIOS[name]()], AdaptiveDepth(), CYCLES)
    assert reached >= 0.97 * best, f"{reached / best:.3f} of k = {k}"
    assert reached >= 0.97 * plain


def test_it_adapts_after_a_shift_in_either_direction() -> None:
    good, bad = World([0.9], draft_seconds=0.1), World([0.1], draft_seconds=0.1)
    controller = AdaptiveDepth()
    for world in (good, bad, good):
        before, _ = best_fixed(partial(copies, world))
        settling = rate([world], controller, 150)
        settled = rate([world], controller, 600)
        assert settled >= 0.97 * before
        assert settling >= 0.85 * before


def test_a_drafter_that_was_idle_is_not_priced_by_what_it_has_to_catch_up_with() -> None:
    """Or it would stay idle: a try after sixty plain cycles costs sixty cycles' reading."""
    controller = AdaptiveDepth()
    run([World([0.05], draft_seconds=0.1, catch_up=0.02)], controller, 800)
    good = partial(World, [0.6], draft_seconds=0.1, catch_up=0.02)
    run([good()], controller, 600)
    best, _ = best_fixed(lambda: [good()])
    assert rate([good()], controller, 800) >= 0.97 * best


def test_it_follows_a_cost_that_shifts() -> None:
    cheap, dear = World([0.7], draft_seconds=0.1), World([0.7], draft_seconds=0.3)
    controller = AdaptiveDepth()
    for world in (cheap, dear, cheap):
        best, _ = best_fixed(partial(copies, world))
        run([world], controller, 300)
        assert rate([world], controller, 600) >= 0.97 * best


def test_a_batch_shares_its_rows_by_what_they_bring() -> None:
    """Each of eight requests alone would draft; together they can't afford it all."""

    def price(rows: int) -> float:
        return 1 + 0.02 * rows + 0.08 * max(rows - 16, 0)

    def worlds() -> list[World]:
        alphas = [[0.9]] * 2 + [[0.6]] * 3 + [[0.2]] * 3
        return [World(alpha, price) for alpha in alphas]

    best, _ = best_fixed(worlds)
    measured = CostTable(rows=(1, 16, 80), cycle_seconds=(price(1), price(16), price(80)))
    controller = AdaptiveDepth(costs=measured)
    assert rate(worlds(), controller, 400) >= 1.03 * best  # no single depth suits them all
    requests = [request() for _ in range(8)]
    mine = worlds()
    for _ in range(40):
        budgets = controller.budgets(requests)
        drafts = [w.draft(b.depth) for w, b in zip(mine, budgets, strict=True)]
        verdicts = [w.verdict(d) for w, d in zip(mine, drafts, strict=True)]
        took = mine[0].pass_seconds(sum(len(d) + 1 for d in drafts))
        times = CycleTimes(draft=0.0, target=took, rest=0.0, batch=8)
        controller.update(requests, drafts, verdicts, times)
    depths = [budget.depth for budget in controller.budgets(requests)]
    assert min(depths[:2]) > max(depths[2:5]) >= max(depths[5:])


def test_a_batch_that_fills_the_machine_decodes_plainly() -> None:
    worlds = [World([0.7], lambda rows: 0.1 + 0.9 * rows) for _ in range(16)]
    tokens, seconds = run(worlds, AdaptiveDepth(), 400)
    assert tokens / seconds >= 0.97 * 16 / worlds[0].pass_seconds(16)


def test_measured_costs_are_used_from_the_first_cycle_on() -> None:
    flat = CostTable(rows=(1, 40), cycle_seconds=(1.0, 1.0))
    dear = CostTable(rows=(1, 40), cycle_seconds=(1.0, 40.0))
    assert AdaptiveDepth(costs=flat).budgets([request()])[0].depth >= 8
    assert AdaptiveDepth(costs=dear).budgets([request()])[0].depth == 0


def test_an_answer_that_is_about_to_end_is_not_overshot() -> None:
    ending = request()
    ending.state.tokens += [0] * (10**6 - 3)
    ending.max_context = 10**6
    flat = CostTable(rows=(1, 40), cycle_seconds=(1.0, 1.0))
    assert AdaptiveDepth(costs=flat).budgets([ending])[0].depth == ending.room == 2


def test_a_tree_takes_its_nodes_per_level_up_to_the_bound() -> None:
    flat = CostTable(rows=(1, 80), cycle_seconds=(1.0, 1.0))
    controller = AdaptiveDepth(nodes_per_level=2.5, most_nodes=20, costs=flat)
    (budget,) = controller.budgets([request()])
    assert budget.depth >= 8 and budget.nodes == 20


@pytest.mark.parametrize("keeps_tokens", [True, False])
def test_where_tokens_depend_on_depths_a_seeded_sample_drafts_at_a_fixed_depth(
    keeps_tokens: bool,
) -> None:
    controller = AdaptiveDepth(keeps_tokens=keeps_tokens)
    run([World([0.05], draft_seconds=1.0)], controller, 100)
    seeded = request(seed=1, temperature=0.8)
    (budget,) = controller.budgets([seeded])
    assert budget.depth == (0 if keeps_tokens else PINNED)


def test_a_decision_does_not_depend_on_the_tokens() -> None:
    """Two texts of one length and one history get the same budgets, whatever they say."""
    controllers = [AdaptiveDepth(), AdaptiveDepth()]
    texts = [request(), request()]
    texts[0].state.tokens += [1] * 50
    texts[1].state.tokens += list(range(50))
    world = World([0.7])
    for _ in range(50):
        first, second = (c.budgets([r])[0] for c, r in zip(controllers, texts, strict=True))
        assert first == second
        draft = world.draft(first.depth)
        verdict = world.verdict(draft)
        for controller, text in zip(controllers, texts, strict=True):
            times = CycleTimes(draft=0.0, target=1 + 0.05 * len(draft), rest=0.0, batch=1)
            controller.update([text], [draft], [verdict], times)


def test_no_draft_goes_deeper_than_the_bound() -> None:
    free = CostTable(rows=(1, 100), cycle_seconds=(1.0, 1.0))
    controller = AdaptiveDepth(costs=free)
    run([World([1.0 - 1e-9], lambda rows: 1.0)], controller, 60)
    assert max(b.depth for b in controller.budgets([request()])) == DEEPEST


def test_a_stall_while_costs_are_learnt_is_got_over() -> None:
    """The first cycles of a process are cold, and one of them was caught by another job."""
    world, controller = World([0.8], draft_seconds=0.02), AdaptiveDepth()
    requests = [request()]
    for stall in (20.0, 1.0, 20.0, 20.0):
        (budget,) = controller.budgets(requests)
        draft = world.draft(budget.depth)
        verdict = world.verdict(draft)
        seconds = stall * world.pass_seconds(len(draft) + 1)
        times = CycleTimes(draft=stall * 0.02 * budget.depth, target=seconds, rest=0.0, batch=1)
        controller.update(requests, [draft], [verdict], times)
    run([world], controller, 400)
    assert rate([world], controller, 400) >= 0.97 * best_fixed(partial(copies, world))[0]
