"""A drafter and a loop around a rule, without models: small laws in, emitted tokens out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from slipstream.sampling.noise import Noise
from slipstream.types import (
    ROOT,
    Draft,
    DrawMethod,
    Gumbel,
    PointMass,
    Receipt,
    Sampled,
    TokenTree,
    TopThenSampled,
    Verdict,
)
from slipstream.verification.base import VerificationRule
from tests.exactness.enumeration import race
from tests.exactness.small_laws import Law, Probs

Shape: TypeAlias = Callable[[Probs, int], int]
"""How many children a node gets, from its own q and its depth; never from the tokens drawn."""


def chain(depth: int) -> Shape:
    return lambda q, level: int(level < depth)


def tree(*widths: int) -> Shape:
    return lambda q, level: widths[level] if level < len(widths) else 0


def dynamic(depth: int) -> Shape:
    """More children where the drafter is less sure; none where it is very sure."""

    def width(q: Probs, level: int) -> int:
        return 0 if level >= depth or (level and q.max() > 0.8) else 1 + int(q.max() < 0.6)

    return width


def best(q: Probs, count: int) -> list[int]:
    """The ``count`` most likely tokens, of positive probability."""
    return [int(t) for t in np.argsort(-q, kind="stable")[:count] if q[t] > 0.0]


def children(
    q: Probs, count: int, draw: DrawMethod, noise: Any, depth: int, row: int
) -> tuple[list[int], Receipt]:
    """Draw the children of one node the way a rule asks for."""
    if draw == "sampled":
        return race(q, noise.draft(depth, row), count), Sampled(q)
    if draw == "gumbel":
        return race(q, noise.pick(depth), count), Gumbel(q)
    if draw == "greedy":
        return best(q, count), PointMass()
    chosen = best(q, count - 1)
    rest = q.copy()
    rest[chosen] = 0.0
    if rest.sum() == 0.0:
        return chosen, PointMass()
    rest /= rest.sum()
    return chosen + race(rest, noise.draft(depth, row)), TopThenSampled(rest)


def propose(
    drafter: Law, context: tuple[int, ...], shape: Shape, draw: DrawMethod, noise: Any
) -> Draft:
    """Grow a draft level by level."""
    tokens: list[int] = []
    parents: list[int] = []
    receipts: list[Receipt | None] = []
    paths: list[tuple[int, ...]] = [()]
    node = ROOT
    while node < len(tokens):
        path = paths[node + 1]
        q = drafter((*context, *path))
        count = shape(q, len(path))
        receipt: Receipt | None = None
        if count:
            new, receipt = children(q, count, draw, noise, len(path), node + 1)
            tokens += new
            parents += [node] * len(new)
            paths += [(*path, token) for token in new]
        receipts.append(receipt)
        node += 1
    return Draft(TokenTree(tuple(tokens), tuple(parents)), tuple(receipts))


def target_rows(target: Law, context: tuple[int, ...], draft: Draft) -> list[Probs]:
    tree = draft.tree
    paths = [tree.path(node) for node in range(ROOT, len(tree))]
    return [target((*context, *(tree.tokens[node] for node in path))) for path in paths]


def emitted(draft: Draft, verdict: Verdict) -> tuple[int, ...]:
    return (*(draft.tree.tokens[node] for node in verdict.path), verdict.token)


def one_cycle(
    rule: VerificationRule,
    target: Law,
    drafter: Law,
    context: tuple[int, ...],
    shape: Shape,
    noise: Any,
    draw: DrawMethod | None = None,
    tamper: Callable[[Draft], Draft] = lambda draft: draft,
) -> tuple[int, ...]:
    """Draft, verify, and return the emitted tokens."""
    draft = tamper(propose(drafter, context, shape, draw or rule.draw, noise))
    verdict = rule.verify(draft, target_rows(target, context, draft), noise)
    return emitted(draft, verdict)


def generate(
    rule: VerificationRule,
    target: Law,
    drafter: Law,
    shape: Shape,
    seed: int,
    length: int,
    *,
    cycle_noise: Callable[[int, int], Any] = lambda seed, start: Noise(seed).cycle(start),
    tamper: Callable[[Draft], Draft] = lambda draft: draft,
) -> tuple[int, ...]:
    """``length`` tokens over as many cycles as it takes, with the real noise."""
    text: tuple[int, ...] = ()
    while len(text) < length:
        noise = cycle_noise(seed, len(text))
        text += one_cycle(rule, target, drafter, text, shape, noise, tamper=tamper)
    return text[:length]
