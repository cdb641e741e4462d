"""The measured speedup of settings over plain decoding, side by side on the same prompts.

For each prompt plain decoding and every setting take their turn, more than once, and the fastest
turn of each counts: another job on the machine only ever adds time, and hits some turns. Which goes
first changes from prompt to prompt. Shape letter: P prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from slipstream.config import Depth, SamplingParams
from slipstream.engine.engine import Engine
from slipstream.engine.generation import Generation
from slipstream.errors import PromptTooLong
from slipstream.profiling.acceptance import Estimate, ratio
from slipstream.profiling.engines import beside
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.profiling.recording import encode


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A setting against plain decoding.

    Args:
        k: drafted depth.
        speedup: seconds per token, plainly over speculatively, with its interval over prompts.
        tokens_per_second: of the setting.
        same_tokens: whether every prompt got the plain decoder's tokens.
    """

    k: Depth
    speedup: Estimate
    tokens_per_second: float
    same_tokens: bool


def measure(
    engine: Engine,
    depths: Sequence[Depth],
    prompts: Sequence[LabelledPrompt],
    params: SamplingParams,
    *,
    repeats: int = 2,
    progress: Callable[[int, int], None] | None = None,
) -> list[Measurement]:
    """Measure the engine's drafter at several depths.

    Args:
        engine: model, drafter and rule.
        depths: the settings.
        prompts: decoded one at a time; those that the context can't hold are left out.
        repeats: turns of each setting at each prompt.
    """
    engines = [beside(engine, drafter="none", k=0)]
    engines += [beside(engine, drafter=engine.drafter, k=k) for k in depths]
    seconds: list[list[float]] = [[] for _ in engines]
    tokens: list[list[int]] = [[] for _ in engines]
    same = [True] * len(engines)
    for done, labelled in enumerate(prompts):
        if progress is not None:
            progress(done, len(prompts))
        prompt = encode(engine, labelled)
        each = replace(params, seed=done)
        results: dict[int, Generation] = {}
        turns: dict[int, list[float]] = {i: [] for i in range(len(engines))}
        try:
            for i in np.roll(np.arange(len(engines)), done).tolist() * repeats:
                results[i] = engines[i].generate(prompt, each)
                turns[i].append(results[i].stats.decode_seconds)
        except PromptTooLong:
            continue
        for i, result in results.items():
            seconds[i].append(min(turns[i]))
            tokens[i].append(result.stats.emitted)
            same[i] &= result.token_ids == results[0].token_ids
    plain_P, counts_P = np.array(seconds[0]), np.array(tokens[0], np.float64)
    measured = []
    for i, k in enumerate(depths, start=1):
        own_P, own_counts_P = np.array(seconds[i]), np.array(tokens[i], np.float64)
        # Other tokens than the plain decoder's may also be fewer or more.
        fair_P = plain_P * own_counts_P / np.maximum(counts_P, 1)
        measured.append(
            Measurement(
                k=k,
                speedup=ratio(fair_P, own_P),
                tokens_per_second=float(own_counts_P.sum() / max(own_P.sum(), 1e-9)),
                same_tokens=same[i],
            )
        )
    return measured
