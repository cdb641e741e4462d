"""What a cycle costs on this machine: by rows, context and batch, and what a drafter's step adds.

Cycles are timed whole, inside a running engine (:mod:`slipstream.profiling.timing`): drafts of set
lengths, all wrong, give C(rows) at one emitted token a cycle, in rounds that visit every length, so
that a busy spell hits all lengths alike; drafts that are right give the price of an emitted token.
C is fitted to be non-decreasing (isotonic least squares on medians), with bootstrap intervals.
Shape letters: N sizes, M measurements of each.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream.config import SamplingParams
from slipstream.engine.cost_table import CostTable
from slipstream.engine.engine import Engine
from slipstream.errors import MissingExtra
from slipstream.profiling.engines import beside
from slipstream.profiling.timing import Replay, Timed

FloatArray = npt.NDArray[np.float64]

ROWS: Final = (1, 2, 3, 4, 5, 6, 7, 9, 11, 13, 17)
MORE_ROWS: Final = (1, 2, 4, 6, 9, 13, 17, 25, 33, 49)
DEPTHS: Final = (1, 2, 4, 8)
_USUAL: Final = 0.92
"""Share of a drafter's times that counts, the shortest ones."""


@dataclass(frozen=True, kw_only=True)
class CycleCost:
    """C(rows) at one context and batch.

    Args:
        context: tokens in the cache when measuring began.
        batch: sequences in a pass.
        rows: N row counts of a pass, all sequences together.
        seconds: (N,) fitted, non-decreasing.
        low, high: (N,) bootstrap interval of the median, 95 %.
        count: measurements of each.
    """

    context: int
    batch: int
    rows: tuple[int, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    count: int

    def at(self, rows: float) -> float:
        """Seconds by rows, linear between and beyond the measured ones."""
        xs, ys = self.rows, self.seconds
        if rows <= xs[-1] or len(xs) == 1:
            return float(np.interp(rows, xs, ys))
        slope = (ys[-1] - ys[-3]) / (xs[-1] - xs[-3]) if len(xs) > 2 else 0.0
        return ys[-1] + slope * (rows - xs[-1])


@dataclass(frozen=True, kw_only=True)
class DraftCost:
    """What a drafter adds to a cycle by the depth it is asked for, proposing and observing."""

    depths: tuple[int, ...]
    seconds: tuple[float, ...]

    def at(self, depth: int) -> float:
        """Seconds by depth; 0 for none."""
        if depth == 0 or not self.depths:
            return 0.0
        if depth <= self.depths[-1] or len(self.depths) == 1:
            return float(np.interp(depth, self.depths, self.seconds))
        step = (self.seconds[-1] - self.seconds[0]) / (self.depths[-1] - self.depths[0])
        return self.seconds[-1] + step * (depth - self.depths[-1])


def isotonic(values: Sequence[float] | FloatArray) -> FloatArray:
    """The closest non-decreasing sequence, by least squares.

    Raises:
        MissingExtra: scipy is missing.
    """
    try:
        from scipy.optimize import isotonic_regression
    except ImportError:
        raise MissingExtra("profiling needs scipy: pip install 'slipstream[profile]'") from None
    return np.asarray(isotonic_regression(np.asarray(values)).x, np.float64)


def fit(samples: Sequence[Sequence[float]]) -> tuple[FloatArray, FloatArray]:
    """Medians made non-decreasing, and their bootstrap intervals.

    Args:
        samples: measured seconds of each of N sizes, smallest size first.

    Returns:
        (N,) seconds and (2, N) low and high.
    """
    medians = np.array([np.median(s) for s in samples])
    rng = np.random.default_rng(0)
    draws = np.stack(
        [np.median(rng.choice(np.asarray(s), (400, len(s))), axis=1) for s in samples], axis=1
    )
    fitted = np.stack([isotonic(draw) for draw in draws])
    return isotonic(medians), np.quantile(fitted, [0.025, 0.975], axis=0)


def measure_cycles(
    engine: Engine, *, context: int, rows: Sequence[int] = ROWS, rounds: int = 7, batch: int = 1
) -> CycleCost:
    """Time cycles of every size.

    Args:
        engine: whose model is timed; its drafter isn't used.
        context: tokens in the cache to begin with; less where the model can't hold so many.
        rows: row counts to visit, per sequence, from 1 on.
        rounds: measurements of each, after one that doesn't count.
        batch: sequences that share each pass.
    """
    longest = engine.model.info.max_context - 2 - 2 * (rounds + 1) * len(rows) - max(rows)
    context = max(2, min(context, longest))
    rng = np.random.default_rng(context)
    order = [int(r) for _ in range(rounds + 1) for r in rng.permutation(np.asarray(rows))]
    replay = _replay(engine, [r - 1 for r in order])
    prompts = [_prompt(engine, context, i) for i in range(batch)]
    _run(engine, replay, prompts, 2 * len(order), max(rows) - 1)
    seconds, emitted = np.diff(replay.begun), np.diff(replay.committed)
    samples: dict[int, list[float]] = {r: [] for r in rows}
    for i, (size, took) in enumerate(zip(order, seconds, strict=False)):
        # A wrong draft that was right after all is not what is measured here.
        if i >= len(rows) and replay.rows[i] == size * batch and emitted[i] == batch:
            samples[size].append(float(took))
    measured = [r for r in rows if samples[r]]
    fitted, (low, high) = fit([samples[r] for r in measured])
    return CycleCost(
        context=context,
        batch=batch,
        rows=tuple(r * batch for r in measured),
        seconds=tuple(fitted.tolist()),
        low=tuple(low.tolist()),
        high=tuple(high.tolist()),
        count=min(len(samples[r]) for r in measured),
    )


def measure_emission(engine: Engine, *, context: int, length: int = 6, rounds: int = 8) -> float:
    """Seconds that each further emitted token adds to a cycle, its rows being paid already.

    The difference between drafts that are all accepted and drafts that are all rejected, of one
    length, by accepted token.
    """
    prompt = _prompt(engine, context, 0)
    tokens = rounds * (length + 1)
    wrong = _replay(engine, [length] * tokens)
    script = _run(engine, wrong, [prompt], tokens + 1, length)
    right = _replay(engine, [length] * rounds, script=script)
    _run(engine, right, [prompt], tokens, length)
    rejected, accepted = np.diff(wrong.begun)[1 : rounds + 1], np.diff(right.begun)[1:]
    if not len(rejected) or not len(accepted):
        return 0.0
    return max(0.0, float(np.median(accepted) - np.median(rejected)) / length)


def measure_drafting(
    engine: Engine,
    *,
    context: int,
    prompts: Sequence[Sequence[int]] = (),
    depths: Sequence[int] = DEPTHS,
    tokens: int = 24,
) -> DraftCost:
    """Time the engine's own drafter at several depths.

    Args:
        context: length of a text of no meaning to draft for, where there are no prompts.
        prompts: token ids; a drafter whose effort depends on the text needs real ones.
        tokens: written after each.
    """
    texts = [list(prompt) for prompt in prompts] or [_prompt(engine, context, 0)]
    seconds = []
    for depth in depths:
        watch = Timed(engine.drafter)
        for text in texts:
            _run(engine, watch, [text], tokens + depth, depth)
        # Near its end a text leaves no room for the whole depth, nor does a short context anywhere.
        allowed = zip(watch.seconds, watch.allowed, strict=True)
        times = [s for s, room in allowed if room == depth] or watch.seconds
        # One stall would spoil the mean of all.
        usual = np.sort(times)[: max(1, int(_USUAL * len(times)))]
        seconds.append(float(np.mean(usual)))
    return DraftCost(depths=tuple(depths), seconds=tuple(isotonic(seconds).tolist()))


def cost_table(cycles: CycleCost, drafting: DraftCost | None = None) -> CostTable:
    """What a controller starts from."""
    return CostTable(
        rows=cycles.rows,
        cycle_seconds=cycles.seconds,
        depths=() if drafting is None else drafting.depths,
        draft_seconds=() if drafting is None else drafting.seconds,
    )


def _replay(
    engine: Engine, lengths: Sequence[int], *, script: Sequence[int] | None = None
) -> Replay:
    plain = beside(engine, drafter="none", k=0)
    return Replay(
        plain.drafter.features, lengths, vocabulary=engine.model.info.vocab_size, script=script
    )


def _prompt(engine: Engine, context: int, salt: int) -> list[int]:
    """Token ids of no meaning; what they are doesn't change what they cost."""
    rng = np.random.default_rng(salt)
    top = min(engine.model.info.vocab_size, 2000)
    return [int(token) for token in rng.integers(top // 4, top, context)]


def _run(engine: Engine, drafter: Any, prompts: list[list[int]], tokens: int, k: int) -> list[int]:
    """Decode greedily past any end token; returns the tokens of the first prompt."""
    room = engine.model.info.max_context - max(map(len, prompts))
    params = SamplingParams(max_tokens=max(1, min(tokens, room)), ignore_eos=True)
    results = beside(engine, drafter=drafter, k=k).generate(prompts, params)
    return list(results[0].token_ids)
