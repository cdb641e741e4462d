"""The loop: draft, grade all guesses in one pass, keep what the rule allows, commit, learn.

Speculative decoding (Leviathan et al. 2211.17192; Chen et al. 2302.01318) for any number of
sequences at once; one cycle is one target pass for all of them, and each sequence keeps as many
tokens as its own verdict allows. Plain decoding is the same loop with an empty draft.

Knows no kernel, no tokenizer and no rule's mathematics. Promises: after a cycle the target's cache
holds all committed tokens but the newest of every sequence, and everything about a request ends at
its earliest end event, even in the middle of an accepted path.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

import numpy as np

from slipstream.drafters.base import Drafter, Observation
from slipstream.engine.controller import Controller
from slipstream.engine.request import Request
from slipstream.engine.stats import CycleTimes
from slipstream.errors import NumericalError
from slipstream.models.base import PREFIX, ForwardOutput, Rows, TargetModel
from slipstream.sampling.rows import ProcessedRows
from slipstream.types import Array, Draft, Verdict
from slipstream.verification.base import VerificationRule


def start(target: TargetModel, drafter: Drafter, request: Request) -> None:
    """Open a request's sequence and feed its prompt, all but the last token."""
    begun = perf_counter()
    request.handle = target.open()
    prompt = request.state.tokens[:-1]
    features = target.prefill(request.handle, prompt, drafter.features) if prompt else None
    drafter.begin(request.state, features)
    request.stats.prefill_seconds = perf_counter() - begun


def cycle(
    target: TargetModel,
    drafter: Drafter,
    rule: VerificationRule,
    controller: Controller,
    requests: Sequence[Request],
) -> None:
    """One draft-verify-commit cycle for a batch of running requests; each gains >= 1 token.

    A request whose logits are broken (:class:`NumericalError`) ends with that error; the others
    go on.
    """
    begun = perf_counter()
    states = [request.state for request in requests]
    wanted = drafter.features
    drafts = drafter.propose(states, controller.budgets(requests), rule.draw)
    drafted = perf_counter()
    output = target.forward(_rows(requests, drafts), wanted)
    graded = perf_counter()

    observations: list[Observation] = []
    verdicts: list[Verdict | None] = []
    first = 0
    for request, draft in zip(requests, drafts, strict=True):
        assert request.handle is not None
        after = first + len(draft.tree.tokens) + 1
        logits = output.logits[first:after]
        verdict: Verdict | None = None
        path: tuple[int, ...] = ()
        try:
            verdict, path = _judge(rule, request, draft, logits)
        except NumericalError as error:
            request.fail(error)
        kept = [0]
        for node in path:
            kept.append(node + 1)
        target.commit(request.handle, kept)
        verdicts.append(verdict)
        if request.finish_reason is None:
            features = None
            if wanted.last or wanted.layers:
                features = _pick(output, [first + row for row in kept])
            observations.append(Observation(request.state, len(kept), path, features))
        first = after
    drafter.observe(observations)

    ended = perf_counter()
    times = CycleTimes(
        draft=drafted - begun, target=graded - drafted, rest=ended - graded, batch=len(requests)
    )
    controller.update(requests, drafts, verdicts, times)
    for request in requests:
        request.stats.add_times(times)


def finish(target: TargetModel, drafter: Drafter, request: Request) -> None:
    """Free what a request holds in target and drafter; safe after a failed start."""
    if request.handle is not None:
        drafter.end(request.state)
        target.close(request.handle)
        request.handle = None


def _judge(
    rule: VerificationRule, request: Request, draft: Draft, logits_RV: Array
) -> tuple[Verdict, tuple[int, ...]]:
    """Verify a draft and append what was kept; returns the verdict and the nodes that were kept."""
    state, start = request.state, len(request.state.tokens)
    rows = ProcessedRows(logits_RV, state.params, state, draft.tree)
    verdict = rule.verify(draft, rows, request.noise.cycle(start))
    kept = request.emit(draft, verdict, logits_RV)
    if request.trace is not None:
        request.trace.add_cycle(start, state.tokens[start - 1], draft, verdict, rows, kept)
    return verdict, verdict.path[: kept - 1] if kept <= len(verdict.path) else verdict.path


def _rows(requests: Sequence[Request], drafts: Sequence[Draft]) -> Rows:
    """Lay out each sequence's root and draft nodes as the rows of one pass."""
    sequences: list[int] = []
    tokens: list[int] = []
    parents: list[int] = []
    for request, draft in zip(requests, drafts, strict=True):
        assert request.handle is not None
        tree = draft.tree
        sequences += [request.handle] * (len(tree.tokens) + 1)
        tokens.append(request.state.tokens[-1])
        tokens += tree.tokens
        parents.append(PREFIX)
        for parent in tree.parents:
            parents.append(parent + 1)
    return Rows(
        sequences=np.asarray(sequences, np.int64),
        tokens=np.asarray(tokens, np.int64),
        parents=np.asarray(parents, np.int64),
    )


def _pick(output: ForwardOutput, rows: list[int]) -> ForwardOutput:
    """The features of some rows."""
    return ForwardOutput(
        logits=output.logits[:0],
        features=None if output.features is None else output.features[rows],
        layer_features={layer: array[rows] for layer, array in output.layer_features.items()},
    )
