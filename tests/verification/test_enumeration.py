"""Exact rules, exhaustively: the law of what the shipped code emits is the target's own."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import numpy as np
import pytest

from slipstream.types import Draft, DrawMethod, Sampled
from slipstream.verification.base import VerificationRule
from slipstream.verification.registry import RULES, get_rule
from tests.exactness.enumeration import OracleNoise, law
from tests.exactness.small_laws import Law, Pair, pairs, random_law, text_law
from tests.exactness.speculation import Shape, chain, dynamic, one_cycle, tree

pytestmark = pytest.mark.usefixtures("enumerable")

EXACT = sorted(name for name, rule in RULES.items() if rule.exact)
TREES = sorted(name for name in EXACT if RULES[name].trees)
CONTEXT = (0,)


def draws(name: str) -> list[DrawMethod]:
    """The kinds of draft that a rule judges. A gumbel draft shares noise with the rule, which
    enumeration of independent draws can't show; :mod:`test_coupled` has it."""
    kinds: dict[str, list[DrawMethod]] = {"greedy_siblings": ["top-then-sampled", "greedy"]}
    return kinds.get(name, ["sampled", "greedy"])


def error(
    rule: VerificationRule,
    pair: Pair,
    shape: Shape,
    draw: DrawMethod,
    tamper: Callable[[Draft], Draft] = lambda draft: draft,
) -> float:
    """Largest difference between the law of the first tokens and the target's.

    What a cycle emits has no fixed length; what is missing is filled up from the target's law, as
    the cycles to come would do if they were exact.
    """
    blocks = law(
        lambda branches: one_cycle(
            rule, pair.target, pair.drafter, CONTEXT, shape, OracleNoise(branches), draw, tamper
        )
    )
    length = max(map(len, blocks))
    texts: dict[tuple[int, ...], float] = dict.fromkeys(
        itertools.product(range(len(pair.target(CONTEXT))), repeat=length), 0.0
    )
    for block, mass in blocks.items():
        rest = text_law(pair.target, (*CONTEXT, *block), length - len(block))
        for text, probability in rest.items():
            texts[(*block, *text)] += mass * probability
    exact = text_law(pair.target, CONTEXT, length)
    return max(abs(mass - exact.get(text, 0.0)) for text, mass in texts.items())


CHAIN_CASES = [
    pytest.param(name, draw, pair, id=f"{name}-{draw}-{pair}")
    for name in EXACT
    for draw in draws(name)
    for pair in pairs(3)
]


@pytest.mark.parametrize(("name", "draw", "pair"), CHAIN_CASES)
@pytest.mark.parametrize("depth", [0, 1, 2])
def test_chains_emit_the_targets_law(name: str, draw: DrawMethod, pair: Pair, depth: int) -> None:
    assert error(get_rule(name), pair, chain(depth), draw) < 1e-12


@pytest.mark.parametrize("name", [name for name in EXACT if name != "greedy_siblings"])
def test_longer_chains_emit_the_targets_law(name: str) -> None:
    assert error(get_rule(name), pairs(3)[0], chain(3), "sampled") < 1e-12


TREE_CASES = [
    pytest.param(name, draw, pair, id=f"{name}-{draw}-{pair}")
    for name in TREES
    for draw in draws(name)
    for pair in pairs(3)
]


@pytest.mark.parametrize(("name", "draw", "pair"), TREE_CASES)
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(tree(2, 1), id="static"),
        pytest.param(tree(2, 2), id="wide"),
        pytest.param(tree(3), id="whole-vocabulary"),
        pytest.param(dynamic(2), id="dynamic"),
    ],
)
def test_trees_emit_the_targets_law(name: str, draw: DrawMethod, pair: Pair, shape: Shape) -> None:
    assert error(get_rule(name), pair, shape, draw) < 1e-12


@pytest.mark.parametrize("name", EXACT)
def test_several_cycles_emit_the_targets_law(name: str) -> None:
    """Cycles follow each other, each drafting from where the last one ended."""
    rule, pair = get_rule(name), pairs(3)[0]

    def text(context: tuple[int, ...], length: int) -> dict[tuple[int, ...], float]:
        if length <= 0:
            return {(): 1.0}
        total: dict[tuple[int, ...], float] = {}
        cycle = law(
            lambda branches: one_cycle(
                rule, pair.target, pair.drafter, context, chain(2), OracleNoise(branches)
            )
        )
        for block, mass in cycle.items():
            for rest, probability in text((*context, *block), length - len(block)).items():
                whole = (*block, *rest)[:length]
                total[whole] = total.get(whole, 0.0) + mass * probability
        return total

    exact = text_law(pair.target, (), 3)
    emitted = text((), 3)
    assert max(abs(emitted.get(t, 0.0) - mass) for t, mass in exact.items()) < 1e-12


# Negative controls: the same measurement must see what is wrong.


@pytest.mark.parametrize("name", ["argmax_match", "typical"])
@pytest.mark.parametrize("draw", ["sampled", "greedy"])
def test_lossy_rules_are_seen_to_be_lossy(name: str, draw: DrawMethod) -> None:
    assert max(error(get_rule(name), pair, chain(2), draw) for pair in pairs(3)) > 0.01


def record_unprocessed(draft: Draft) -> Draft:
    """Receipts with another temperature than the draws had."""

    def flatten(probs: np.ndarray) -> np.ndarray:
        return np.sqrt(probs) / np.sqrt(probs).sum()

    receipts = tuple(r and Sampled(flatten(r.probs)) for r in draft.receipts)
    return dataclasses.replace(draft, receipts=receipts)


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_a_receipt_that_was_not_sampled_from_is_seen(name: str) -> None:
    pair = pairs(3)[0]
    assert error(get_rule(name), pair, chain(2), "sampled", record_unprocessed) > 0.01


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_a_residual_drawn_from_p_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        f"slipstream.verification.{name}.excess", lambda probs, receipt, token, scale=1.0: probs
    )
    assert error(get_rule(name), pairs(3)[0], chain(2), "sampled") > 0.01


def test_pruning_by_drawn_values_is_seen() -> None:
    """A child dropped because of what it turned out to be: its q no longer tells how it came."""

    def drop_unlikely(draft: Draft) -> Draft:
        receipt = draft.receipts[0]
        assert isinstance(receipt, Sampled)
        return Draft() if receipt.probs[draft.tree.tokens[0]] < 0.3 else draft

    assert error(get_rule("rejection"), pairs(3)[0], chain(1), "sampled", drop_unlikely) > 0.01


# Checked values.


def accepted(name: str, p: list[float], q: list[float], shape: Shape) -> float:
    """Expected accepted tokens, p and q the same in every context."""
    rule = get_rule(name)
    blocks = law(
        lambda branches: one_cycle(
            rule, lambda _: np.array(p), lambda _: np.array(q), (), shape, OracleNoise(branches)
        )
    )
    return sum(mass * (len(block) - 1) for block, mass in blocks.items())


def test_block_accepts_eleven_ninths_where_rejection_accepts_ten_ninths() -> None:
    p, q = [1 / 3, 2 / 3], [2 / 3, 1 / 3]
    assert accepted("rejection", p, q, chain(2)) == pytest.approx(10 / 9, abs=1e-12)
    assert accepted("block", p, q, chain(2)) == pytest.approx(11 / 9, abs=1e-12)


@pytest.mark.parametrize(("width", "expected"), [(1, 1 / 2), (2, 19 / 28), (3, 8191 / 10500)])
def test_recursive_acceptance_has_the_known_values(width: int, expected: float) -> None:
    p, q = [0.5, 0.3, 0.1, 0.1], [0.1, 0.2, 0.3, 0.4]
    assert accepted("recursive", p, q, tree(width)) == pytest.approx(expected, abs=1e-12)


def test_greedy_siblings_accept_the_siblings_mass_and_the_overlap_beside_them() -> None:
    p, q = np.array([0.1, 0.3, 0.1, 0.5]), np.array([0.1, 0.2, 0.3, 0.4])
    rest = np.array([0.1, 0.2, 0.3, 0.0]) / 0.6
    expected = p[3] + np.minimum(p, rest)[:3].sum()
    got = accepted("greedy_siblings", p.tolist(), q.tolist(), tree(2))
    assert got == pytest.approx(expected, abs=1e-12)


def test_block_never_accepts_fewer_than_rejection() -> None:
    def mean_length(name: str, target: Law, drafter: Law) -> float:
        rule = get_rule(name)
        blocks = law(
            lambda branches: one_cycle(rule, target, drafter, (), chain(2), OracleNoise(branches))
        )
        return sum(mass * len(block) for block, mass in blocks.items())

    for seed in range(12):
        laws = random_law(seed, [True] * 3), random_law(100 + seed, [True] * 3)
        assert mean_length("block", *laws) >= mean_length("rejection", *laws) - 1e-12
