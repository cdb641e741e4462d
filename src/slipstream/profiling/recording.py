"""What a drafter's guesses came to, cycle by cycle, on a list of prompts.

Listens to verdicts through the engine's trace, so the numbers are those that the rule saw. Knows no
statistics. Shape letter: P prompts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from slipstream.config import SamplingParams
from slipstream.engine.engine import Engine
from slipstream.engine.trace import Trace
from slipstream.errors import InvalidInput, PromptTooLong
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.types import Draft, Verdict

if TYPE_CHECKING:
    from slipstream.sampling.rows import ProcessedRows

TOP = 20
"""Likeliest tokens from which the target's entropy is computed; the rest counts as one."""


@dataclass(frozen=True)
class CycleRecord:
    """One verdict.

    Args:
        drafted: nodes of the draft.
        depth: its longest path.
        alphas: at every node reached that had drafted children.
        accepted: drafted tokens that were kept.
        emitted: tokens that were kept, the rule's own included.
    """

    drafted: int
    depth: int
    alphas: tuple[float, ...]
    accepted: int
    emitted: int


@dataclass(frozen=True)
class PromptRecord:
    """All cycles of one prompt.

    Args:
        domain: what kind of prompt it was.
        prompt_tokens: its length.
        tokens: tokens emitted.
        entropy: the target's mean entropy per token in nats, before any processor, from its
            likeliest tokens and the rest together: a lower bound, close where the rest is small;
            NaN if unknown.
        cycles: what happened.
    """

    domain: str
    prompt_tokens: int
    tokens: int
    entropy: float
    cycles: tuple[CycleRecord, ...]


class _Listener(Trace):
    """A trace that keeps numbers instead of words."""

    def __init__(self) -> None:
        self.records: list[CycleRecord] = []

    def add_cycle(
        self,
        start: int,
        root: int,
        draft: Draft,
        verdict: Verdict,
        rows: ProcessedRows,
        kept: int,
    ) -> None:
        self.records.append(
            CycleRecord(
                drafted=len(draft),
                depth=max(draft.tree.depths, default=0),
                alphas=tuple(float(alpha) for alpha in verdict.alphas[:kept]),
                accepted=min(kept, len(verdict.path)),
                emitted=kept,
            )
        )


def record(
    engine: Engine,
    prompts: Sequence[LabelledPrompt],
    params: SamplingParams,
    *,
    progress: Callable[[int, int], None] | None = None,
) -> list[PromptRecord]:
    """Decode every prompt alone and write down its cycles.

    Prompts that the model's context can't hold are left out.

    Raises:
        InvalidInput: not one prompt fits.
    """
    records = []
    params = replace(params, logprobs=TOP)
    for done, labelled in enumerate(prompts):
        if progress is not None:
            progress(done, len(prompts))
        listener = _Listener()
        try:
            prompt = encode(engine, labelled)
            stream = engine.stream(prompt, params, trace=listener)
        except PromptTooLong:
            continue
        for _ in stream:
            pass
        result = stream.result
        assert result.logprobs is not None
        entropies = [entropy([logprob for _, logprob in entry.top]) for entry in result.logprobs]
        records.append(
            PromptRecord(
                domain=labelled.domain,
                prompt_tokens=len(prompt),
                tokens=len(result.token_ids),
                entropy=sum(entropies) / max(len(entropies), 1),
                cycles=tuple(listener.records),
            )
        )
    if not records:
        raise InvalidInput(f"none of {len(prompts)} prompts fits into the model's context")
    return records


def encode(engine: Engine, labelled: LabelledPrompt) -> list[int]:
    """Token ids of a prompt, as a chat where the model can chat."""
    return engine.encode(labelled.prompt, chat=engine.tokenizer.has_chat_template)


def entropy(logprobs: Sequence[float]) -> float:
    """Nats, from the likeliest tokens' log-probabilities; whatever is left counts as one token."""
    rest = 1 - math.fsum(math.exp(logprob) for logprob in logprobs)
    known = -math.fsum(logprob * math.exp(logprob) for logprob in logprobs)
    return known - (rest * math.log(rest) if rest > 1e-9 else 0.0)
