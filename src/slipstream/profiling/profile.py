"""A profile: cost, acceptance and predicted speedup of drafters, and the check of the prediction.

Everything is measured on the prompts at hand, with one model that stays loaded. Knows no screen and
no file; :mod:`slipstream.profiling.report` draws it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import numpy as np

from slipstream.config import Depth, SamplingParams
from slipstream.engine.engine import Engine
from slipstream.errors import InvalidInput, SlipstreamError
from slipstream.profiling.acceptance import by_domain, summarise
from slipstream.profiling.cost import (
    MORE_ROWS,
    CycleCost,
    isotonic,
    measure_cycles,
    measure_drafting,
    measure_emission,
)
from slipstream.profiling.cost_cache import cost_file, load_costs, save_costs
from slipstream.profiling.engines import beside
from slipstream.profiling.findings import Check, DrafterProfile, Profile
from slipstream.profiling.measuring import measure
from slipstream.profiling.prediction import Costs, break_even_batch, predict
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.profiling.recording import encode, record

DEEPEST: Final = 12
"""Depth of the recorded drafts, and the largest k that is predicted."""

_TIMED_PROMPTS: Final = 3
"""On so many of the prompts is drafting timed."""

Notice = Callable[[str, int, int], None]


def profile(
    engine: Engine,
    drafters: Sequence[Any],
    prompts: Sequence[LabelledPrompt],
    *,
    model: str,
    temperatures: Sequence[float] = (0.0,),
    max_tokens: int = 64,
    tolerate: bool = False,
    fresh: bool = False,
    notice: Notice = lambda what, done, total: None,
) -> Profile:
    """Measure cost, then each drafter's acceptance at each temperature; predict; check the best.

    Args:
        engine: a loaded model with the rule to judge by; its own drafter isn't used.
        drafters: specifications such as ``prompt-lookup``, or drafters.
        prompts: at least one.
        model: its name, for people.
        temperatures: each is a sweep of its own.
        max_tokens: written per prompt.
        tolerate: leave out a drafter that can't be built, instead of failing.
        fresh: measure costs even if they were kept.
        notice: told what goes on.

    Raises:
        InvalidInput: no prompts, no drafter, or none that can be built.
        MissingExtra: scipy is missing.
    """
    if not prompts:
        raise InvalidInput("profiling needs at least one prompt")
    isotonic([0.0])  # says what is missing before minutes of measuring, not after
    texts = [encode(engine, prompt) for prompt in prompts]
    context = int(np.mean([len(text) for text in texts])) + max_tokens // 2
    fitting = [text for text in texts if len(text) <= engine.model.info.max_context // 2]
    some = fitting[:: max(1, len(fitting) // _TIMED_PROMPTS)][:_TIMED_PROMPTS]
    notice("cost of a cycle", 0, 1)
    cycles, emission = _cycle_costs(engine, context, fresh)
    further = [_elsewhere(engine, other) for other in (32, 1024) if not 0.5 < other / context < 2]
    result = Profile(
        model=model,
        backend=type(engine.model).__name__,
        verify=engine.rule.name,
        prompts=len(prompts),
        cycles=cycles,
        further=[cost for cost in further if cost is not None],
        emission=emission,
    )
    for source in drafters:
        spec = source if isinstance(source, str) else source.name
        try:
            drafting_engine = beside(engine, drafter=source, k=DEEPEST)
        except SlipstreamError as error:
            if not tolerate:
                raise
            result.left_out[spec] = str(error)
            continue
        notice(f"cost of drafting, {spec}", 0, 1)
        drafting = measure_drafting(drafting_engine, context=context, prompts=some)
        for temperature in temperatures:
            params = SamplingParams(temperature=temperature, seed=0, max_tokens=max_tokens)
            what = f"acceptance of {spec} at T = {temperature:g}"
            records = record(drafting_engine, prompts, params, progress=partial(notice, what))
            nodes = sum(c.drafted for r in records for c in r.cycles)
            levels = sum(c.depth for r in records for c in r.cycles)
            costs = Costs(
                cycles=cycles,
                emission=emission,
                drafting=drafting,
                nodes_per_level=nodes / levels if levels else 1.0,
            )
            groups = by_domain(records)
            result.drafters.append(
                DrafterProfile(
                    drafter=spec,
                    source=source,
                    temperature=temperature,
                    overall=summarise(records),
                    domains={domain: summarise(group) for domain, group in groups.items()},
                    curve=predict(records, costs, DEEPEST),
                    domain_curves={d: predict(g, costs, DEEPEST) for d, g in groups.items()},
                    drafting=drafting,
                    quit_batch=break_even_batch(records, costs, DEEPEST),
                )
            )
    if not result.drafters:
        raise InvalidInput(f"no drafter to profile: {result.left_out or 'none was named'}")
    return result


def check(
    engine: Engine,
    found: Profile,
    prompts: Sequence[LabelledPrompt],
    *,
    depths: Sequence[Depth] | None = None,
    max_tokens: int = 64,
    notice: Notice = lambda what, done, total: None,
) -> list[Check]:
    """Measure the chosen drafter against plain decoding and set it beside the prediction.

    Args:
        depths: which k to measure; None measures the best predicted k and ``auto``.
    """
    best = found.best
    chosen: Sequence[Depth] = depths or (max(best.curve.best, 1), "auto")
    drafting = beside(engine, drafter=best.source, k=DEEPEST)
    params = SamplingParams(temperature=best.temperature, max_tokens=max_tokens)
    measured = measure(
        drafting,
        chosen,
        prompts,
        params,
        progress=partial(notice, "measuring the chosen setting"),
    )
    checks = [
        Check(
            drafter=best.drafter,
            temperature=best.temperature,
            predicted=None if m.k == "auto" else best.curve.speedups[m.k].value,
            measured=m,
        )
        for m in measured
    ]
    found.checks += checks
    return checks


def _cycle_costs(engine: Engine, context: int, fresh: bool) -> tuple[CycleCost, float]:
    path = cost_file(engine, context)
    kept = None if fresh else load_costs(path)
    if kept is not None:
        return kept
    cycles = measure_cycles(engine, context=context)
    emission = measure_emission(engine, context=context)
    save_costs(path, cycles, emission)
    return cycles, emission


def _elsewhere(engine: Engine, context: int) -> CycleCost | None:
    if context > engine.model.info.max_context // 2:
        return None
    return measure_cycles(engine, context=context, rows=MORE_ROWS[:6], rounds=3)
