"""What every rule promises of every verdict, at any temperature, on numpy and on torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.errors import InvalidInput, UnknownName, VocabularyMismatch
from slipstream.sampling.noise import Noise
from slipstream.sampling.race import race
from slipstream.types import (
    ROOT,
    Draft,
    Gumbel,
    PointMass,
    Receipt,
    Sampled,
    TokenTree,
    TopThenSampled,
    Verdict,
)
from slipstream.verification.base import VerificationRule
from slipstream.verification.registry import RULES, get_rule
from tests.exactness.small_laws import Law
from tests.exactness.speculation import chain, dynamic, emitted, propose, target_rows, tree

SIZES = st.sampled_from([2, 5, 40])
NAMES = st.sampled_from(sorted(RULES))
SEEDS = st.integers(0, 2**32 - 1)
CHAINS = st.integers(0, 5).map(chain)
TREES = st.sampled_from([tree(2, 2), tree(3, 1, 1), dynamic(3)])


def float32_law(seed: int, size: int, sharpness: float) -> Law:
    """Distributions as a model has them: float32 softmax, some tokens cut off, each context new."""

    def probs(context: tuple[int, ...]) -> np.ndarray:
        rng = np.random.default_rng([seed, *context])
        logits = sharpness * rng.standard_normal(size).astype(np.float32)
        weights = np.exp(logits - logits.max())
        weights[weights < np.float32(1e-3)] = 0.0
        return weights / weights.sum()

    return probs


def greedy(law: Law) -> Law:
    def one_hot(context: tuple[int, ...]) -> np.ndarray:
        probs = law(context)
        best = np.zeros_like(probs)
        best[probs.argmax()] = 1.0
        return best

    return one_hot


@dataclasses.dataclass(frozen=True)
class Case:
    rule: VerificationRule
    draft: Draft
    rows: list[np.ndarray]
    target: Law
    noise: Any

    def verdict(self) -> Verdict:
        return self.rule.verify(self.draft, self.rows, self.noise)


@st.composite
def cases(draw: st.DrawFn, names: st.SearchStrategy[str] = NAMES, cold: bool = False) -> Case:
    rule = get_rule(draw(names))
    size, seed, sharpness = draw(SIZES), draw(SEEDS), draw(st.floats(0.0, 6.0))
    target = float32_law(seed, size, sharpness)
    drafter = draw(st.sampled_from([target, float32_law(seed + 1, size, sharpness)]))
    if cold:
        target, drafter = greedy(target), greedy(drafter)
    shape = draw(CHAINS | TREES if rule.trees else CHAINS)
    noise = Noise(seed).cycle(draw(st.integers(0, 9)))
    draft = propose(drafter, (), shape, rule.draw, noise)
    return Case(rule, draft, target_rows(target, (), draft), target, noise)


@settings(derandomize=True, max_examples=150, deadline=None)
@given(cases())
def test_a_verdict_is_a_path_and_a_possible_token(case: Case) -> None:
    verdict, tree = case.verdict(), case.draft.tree
    assert verdict.path == (tree.path(verdict.path[-1]) if verdict.path else ())
    context: tuple[int, ...] = ()
    for token in emitted(case.draft, verdict):
        assert case.target(context)[token] > 0.0
        context += (token,)
    reached = [node for node in (ROOT, *verdict.path) if case.draft.receipt(node) is not None]
    assert len(verdict.alphas) == len(reached)
    assert all(0.0 <= alpha <= 1.0 for alpha in verdict.alphas)
    refused = case.draft.receipt(verdict.path[-1] if verdict.path else ROOT) is not None
    assert verdict.origin == ("residual" if refused else "bonus")


@settings(derandomize=True, max_examples=60, deadline=None)
@given(cases(cold=True))
def test_at_temperature_zero_every_rule_is_plain_greedy(case: Case) -> None:
    verdict = case.verdict()
    context: tuple[int, ...] = ()
    for token in emitted(case.draft, verdict):
        assert token == case.target(context).argmax()
        context += (token,)
    best = case.target(emitted(case.draft, verdict)[:-1]).argmax()
    last = verdict.path[-1] if verdict.path else ROOT
    assert best not in [case.draft.tree.tokens[child] for child in case.draft.tree.children(last)]


@settings(derandomize=True, max_examples=60, deadline=None)
@given(cases())
def test_torch_gives_the_same_verdicts(case: Case) -> None:
    def as_torch(receipt: Receipt | None) -> Receipt | None:
        if receipt is None or isinstance(receipt, PointMass):
            return receipt
        return type(receipt)(torch.from_numpy(receipt.probs.copy()))

    receipts = tuple(as_torch(receipt) for receipt in case.draft.receipts)
    rows = [torch.from_numpy(row.copy()) for row in case.rows]
    verdict = case.rule.verify(Draft(case.draft.tree, receipts), rows, case.noise)
    expected = case.verdict()
    assert verdict.alphas == pytest.approx(expected.alphas, abs=1e-6)
    assert dataclasses.replace(verdict, alphas=expected.alphas) == expected


@settings(derandomize=True, max_examples=60, deadline=None)
@given(cases(st.just("coupled")), st.sampled_from(["gumbel", "sampled", "greedy"]), CHAINS | TREES)
def test_coupled_text_is_the_plain_samplers_for_any_draft(
    case: Case, draw: Any, shape: Any
) -> None:
    drafter = float32_law(17, len(case.rows[0]), 2.0)
    draft = propose(drafter, (), shape, draw, case.noise)
    verdict = case.rule.verify(draft, target_rows(case.target, (), draft), case.noise)
    context: tuple[int, ...] = ()
    for offset, token in enumerate(emitted(draft, verdict)):
        assert [token] == race(case.target(context), case.noise.pick(offset))
        context += (token,)


def test_without_a_draft_all_rules_emit_the_plain_samplers_token() -> None:
    probs = float32_law(0, 40, 2.0)(())
    for seed in range(20):
        noise = Noise(seed).cycle(3)
        plain = race(probs, noise.pick(0))[0]
        for name in RULES:
            assert get_rule(name).verify(Draft(), [probs], noise) == Verdict((), plain, "bonus")


def test_rejection_and_recursive_agree_on_chains() -> None:
    target, drafter = float32_law(1, 5, 1.5), float32_law(2, 5, 1.5)
    for seed in range(200):
        noise = Noise(seed).cycle(0)
        draft = propose(drafter, (), chain(4), "sampled", noise)
        rows = target_rows(target, (), draft)
        verdicts = {
            get_rule(name).verify(draft, rows, noise) for name in ("rejection", "recursive")
        }
        assert len(verdicts) == 1


@pytest.mark.parametrize("seed", range(3))
def test_gumbel_coupling_accepts_as_often_as_the_formula_says(seed: int) -> None:
    """Sum over t of 1 / sum over s of max(p_s / p_t, q_s / q_t), and at least (1-D)/(1+D)."""
    rng = np.random.default_rng(seed)
    p, q = rng.dirichlet(np.ones(4)), rng.dirichlet(np.ones(4))
    expected = sum(1 / np.maximum(p / p[t], q / q[t]).sum() for t in range(4))
    distance = np.abs(p - q).sum() / 2
    assert (1 - distance) / (1 + distance) <= expected <= 1 - distance + 1e-12
    rule, accepted, trials = get_rule("coupled"), 0, 4000
    for trial in range(trials):
        noise = Noise(trial).cycle(0)
        draft = propose(lambda _: q, (), chain(1), "gumbel", noise)
        accepted += len(rule.verify(draft, [p, p], noise).path)
    assert abs(accepted / trials - expected) < 5 * np.sqrt(expected * (1 - expected) / trials)


# Alpha, by receipt.


def test_alpha_is_the_overlap_of_p_and_q() -> None:
    p, q = np.array([0.5, 0.25, 0.25]), np.array([0.25, 0.25, 0.5])
    noise = Noise(0).cycle(0)
    for receipt, rule in ((Sampled(q), "rejection"), (Gumbel(q), "coupled")):
        verdict = get_rule(rule).verify(Draft.chain([2], [receipt]), [p, p], noise)
        assert verdict.alphas == (0.75,)
    assert get_rule("rejection").verify(Draft.chain([1], [PointMass()]), [p, p], noise).alphas == (
        0.25,
    )
    both = TokenTree((0, 1), (ROOT, ROOT))
    point = Draft(both, (PointMass(), None, None))
    assert get_rule("recursive").verify(point, [p] * 3, noise).alphas == (0.75,)
    mixed = Draft(both, (TopThenSampled(np.array([0.0, 0.25, 0.75])), None, None))
    assert get_rule("greedy_siblings").verify(mixed, [p] * 3, noise).alphas == (1.0,)


# Refusals.


def test_chain_rules_refuse_siblings() -> None:
    p = np.full(4, 0.25, np.float32)
    siblings = Draft(TokenTree((0, 1), (ROOT, ROOT)), (Sampled(p), None, None))
    for name, rule in RULES.items():
        if not rule.trees:
            with pytest.raises(InvalidInput, match="chains"):
                get_rule(name).verify(siblings, [p] * 3, Noise(0).cycle(0))


def test_receipts_that_a_rule_cannot_judge_are_refused() -> None:
    p = np.full(4, 0.25, np.float32)
    for name, rule in RULES.items():
        for receipt in (Sampled(p), Gumbel(p), PointMass(), TopThenSampled(p)):
            if type(receipt) not in rule.receipts:
                with pytest.raises(InvalidInput, match=f"can't judge .* {type(receipt).__name__}"):
                    get_rule(name).verify(Draft.chain([1], [receipt]), [p, p], Noise(0).cycle(0))


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_a_receipt_that_cannot_have_given_its_token_is_refused(name: str) -> None:
    p = np.full(2, 0.5, np.float32)
    draft = Draft.chain([1], [Sampled(np.array([1.0, 0.0], np.float32))])
    with pytest.raises(InvalidInput, match="not the distribution"):
        get_rule(name).verify(draft, [p, p], Noise(0).cycle(0))


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_receipt_of_another_vocabulary_is_refused(name: str) -> None:
    p, q = np.full(4, 0.25, np.float32), np.full(5, 0.2, np.float32)
    kind = Sampled if Sampled in RULES[name].receipts else TopThenSampled
    with pytest.raises(VocabularyMismatch, match="over 5 tokens"):
        get_rule(name).verify(Draft.chain([1], [kind(q)]), [p, p], Noise(0).cycle(0))


def test_equal_siblings_are_refused() -> None:
    p = np.full(2, 0.5, np.float32)
    twins = Draft(TokenTree((1, 1), (ROOT, ROOT)), (PointMass(), None, None))
    with pytest.raises(InvalidInput, match="different tokens"):
        get_rule("coupled").verify(twins, [p] * 3, Noise(0).cycle(0))


@pytest.mark.parametrize("name", ["rejection", "block", "recursive"])
def test_p_and_q_equal_to_the_last_bit_leave_no_residual_and_no_error(name: str) -> None:
    """Float32 rounding can make a rejection of probability zero happen; p takes over."""
    nearly = np.array([np.nextafter(np.float32(1), np.float32(0)), 0.0], np.float32)

    class Unlucky:
        def accept(self, row: int) -> float:
            return 1.0 - 2.0**-53

        def pick(self, offset: int) -> Any:
            return Noise(0).cycle(0).pick(offset)

    draft = Draft.chain([0], [PointMass()])
    assert get_rule(name).verify(draft, [nearly] * 2, Unlucky()) == Verdict(
        (), 0, "residual", (float(nearly[0]),)
    )


# The registry.


def test_rules_are_known_by_name_and_say_what_they_are() -> None:
    assert set(RULES) == {
        "rejection", "block", "coupled", "argmax_match", "recursive", "greedy_siblings", "typical",
    }  # fmt: skip
    for name, rule in RULES.items():
        assert rule.name == name
        assert rule.exact == ("LOSSY" not in (rule.__doc__ or ""))
        assert isinstance(get_rule(name), rule)
    assert {name for name, rule in RULES.items() if not rule.exact} == {"argmax_match", "typical"}


def test_unknown_rules_and_options_list_the_known_ones() -> None:
    with pytest.raises(UnknownName, match="argmax_match, block, coupled"):
        get_rule("exact")
    with pytest.raises(UnknownName, match="valid: delta, epsilon"):
        get_rule("typical", threshold=0.1)
    with pytest.raises(InvalidInput, match="epsilon"):
        get_rule("typical", epsilon=0.0)
    with pytest.raises(TypeError):
        RULES["mine"] = RULES["block"]  # type: ignore[index]


# Typical acceptance.


def test_typical_keeps_what_is_above_its_threshold() -> None:
    p = np.array([0.05, 0.15, 0.8], np.float32)  # exp(-H) = 0.54
    noise = Noise(0).cycle(0)

    def kept(token: int, **options: float) -> bool:
        rule = get_rule("typical", **options)
        return rule.verify(Draft.chain([token], [PointMass()]), [p, p], noise).path == (0,)

    assert kept(1, epsilon=0.1, delta=1.0) and not kept(1, epsilon=0.2, delta=1.0)
    assert kept(1, epsilon=1.0, delta=0.27) and not kept(1, epsilon=1.0, delta=0.28)
    assert kept(2, epsilon=1.0, delta=1.0)  # the best token after the root, whatever the threshold


def test_typical_takes_the_deepest_path() -> None:
    p = np.full(4, 0.25, np.float32)
    draft = Draft(TokenTree((0, 1, 2), (ROOT, ROOT, 1)), (PointMass(), None, PointMass(), None))
    assert get_rule("typical").verify(draft, [p] * 4, Noise(0).cycle(0)).path == (1, 2)
