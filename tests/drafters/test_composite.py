"""One tree of several drafters: prefixes fall together, budgets add up, receipts stay true."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from slipstream.config import EngineConfig, SamplingParams
from slipstream.drafters.base import Budget, Observation, Stateless
from slipstream.drafters.composite import Composite
from slipstream.drafters.merge import merge
from slipstream.drafters.prompt_lookup import PromptLookup
from slipstream.drafters.registry import DrafterContext, make_drafter
from slipstream.errors import InvalidInput, UnknownName
from slipstream.models.base import FeatureRequest
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.types import (
    ROOT,
    Draft,
    DrawMethod,
    Gumbel,
    PointMass,
    Receipt,
    Sampled,
    SequenceState,
    TokenTree,
    TopThenSampled,
)
from tests.drafters.tiny_drafters import write_drafter

Q = np.array([0.4, 0.3, 0.2, 0.1], np.float32)


def copy(*tokens: int) -> Draft:
    return Draft.chain(tokens, [PointMass()] * len(tokens))


def fork(receipt: Receipt, *tokens: int) -> Draft:
    """Children of the root only."""
    return Draft(TokenTree(tokens, (ROOT,) * len(tokens)), (receipt, *(None for _ in tokens)))


def paths(draft: Draft) -> set[tuple[int, ...]]:
    tree = draft.tree
    return {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}


def test_common_prefixes_fall_together() -> None:
    tree = TokenTree((1, 2, 3, 4), (ROOT, ROOT, 0, 2))
    other = Draft(tree, (PointMass(), PointMass(), None, PointMass(), None))
    merged = merge(copy(1, 3, 5), other)
    assert paths(merged) == {(1,), (2,), (1, 3), (1, 3, 4), (1, 3, 5)}
    assert all(type(r) is PointMass for r in merged.receipts if r)
    assert merge(Draft(), other) == other and merge(copy(1), Draft()) == copy(1)


def test_coupled_children_take_a_chosen_one_beside_them() -> None:
    merged = merge(copy(3, 0), fork(Gumbel(Q), 1, 0))
    assert paths(merged) == {(1,), (0,), (3,), (3, 0)}
    assert merged.receipts[0] == PointMass()
    untouched = merge(copy(3, 0), Draft.chain([3], [Gumbel(Q)]))
    assert paths(untouched) == {(3,), (3, 0)}


def test_sampled_children_stay_alone_and_keep_their_receipt() -> None:
    other = fork(Sampled(Q), 1, 0)
    merged = merge(copy(3, 2), other)
    assert merged.tree == other.tree and merged.receipts[0] is other.receipts[0]
    agreeing = merge(copy(0, 2), other)
    assert paths(agreeing) == {(1,), (0,), (0, 2)}
    assert agreeing.receipts[0] is other.receipts[0]


def test_a_sample_beside_chosen_ones_is_a_sample_of_what_they_leave() -> None:
    rest = np.array([0.0, 0.5, 0.25, 0.25], np.float32)
    merged = merge(copy(3), fork(TopThenSampled(rest), 0, 1))
    assert merged.tree.tokens == (0, 3, 1)  # the sample stays last
    receipt = merged.receipts[0]
    assert isinstance(receipt, TopThenSampled)
    np.testing.assert_allclose(receipt.probs, [0.0, 2 / 3, 1 / 3, 0.0], atol=1e-7)
    drawn_too = merge(copy(1), fork(TopThenSampled(rest), 0, 1))
    assert drawn_too.tree.tokens == (0, 1) and drawn_too.receipts[0] == PointMass()
    among_the_top = merge(copy(0), fork(TopThenSampled(rest), 0, 1))
    assert among_the_top.receipts[0].probs is rest  # type: ignore[union-attr]


class Scripted(Stateless):
    """Drafts the same chain whenever its budget allows, and notes what it is told."""

    trees = True

    def __init__(self, name: str, *tokens: int) -> None:
        self.name, self._tokens = name, tokens
        self.budgets: list[Budget] = []
        self.seen: list[Observation] = []

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        self.budgets += budgets
        return [copy(*self._tokens[: min(b.depth, b.nodes)]) for b in budgets]

    def observe(self, observations: Sequence[Observation]) -> None:
        self.seen += observations


def sequence(tokens: Sequence[int] = (1, 2, 3)) -> SequenceState:
    return SequenceState(0, list(tokens), len(tokens), SamplingParams(temperature=1.0), 1)


def cycle(
    drafter: Composite, state: SequenceState, emitted: Sequence[int], *, depth: int, nodes: int
) -> Draft:
    """Propose, then commit these tokens, the last of which is the rule's own."""
    [draft] = drafter.propose([state], [Budget(depth=depth, nodes=nodes)], "gumbel")
    node, path = ROOT, []
    for token in emitted[:-1]:
        [node] = [c for c in draft.tree.children(node) if draft.tree.tokens[c] == token]
        path.append(node)
    state.tokens += emitted
    drafter.observe([Observation(state, len(emitted), tuple(path))])
    return draft


def test_the_budget_is_shared_and_never_exceeded() -> None:
    cheap, learned = Scripted("a", *range(10, 30)), Scripted("b", *range(40, 60))
    drafter = Composite([cheap, learned])
    state = sequence()
    drafter.begin(state, None)
    draft = cycle(drafter, state, [10, 11, 12, 13], depth=5, nodes=8)
    assert len(draft) <= 8 and cheap.budgets[0].nodes + learned.budgets[0].nodes <= 8
    for _ in range(6):  # the cheap one is right each time: it may go further
        draft = cycle(drafter, state, [10, 11, 12, 90], depth=5, nodes=8)
        assert len(draft) <= 8
    assert cheap.budgets[-1].nodes > cheap.budgets[0].nodes
    assert learned.budgets[-1].nodes >= 1
    for _ in range(30):  # and wrong each time: a single node
        cycle(drafter, state, [90], depth=5, nodes=8)
    assert cheap.budgets[-1].nodes == 1 and learned.budgets[-1].nodes == 7


def test_a_chain_budget_goes_to_the_first_that_has_something_to_say() -> None:
    learned = Scripted("b", 40, 41)
    drafter = Composite([PromptLookup(min_ngram=2), learned])
    state = sequence([1, 2, 3])
    drafter.begin(state, None)
    assert cycle(drafter, state, [1], depth=2, nodes=2).tree.tokens == (40, 41)
    assert cycle(drafter, state, [2], depth=2, nodes=2).tree.tokens == (40, 41)
    assert cycle(drafter, state, [3, 1, 2], depth=2, nodes=2).tree.tokens == (3, 1)
    assert [budget.depth for budget in learned.budgets] == [2, 2, 0]  # not asked: costs nothing
    assert len(learned.seen) == 3  # and stays level
    assert learned.seen[2].emitted == 3 and learned.seen[2].path == ()


def test_sources_hear_of_their_own_nodes() -> None:
    cheap, learned = Scripted("a", 10, 11), Scripted("b", 10, 41)
    drafter = Composite([cheap, learned])
    state = sequence()
    drafter.begin(state, None)
    cycle(drafter, state, [10, 41, 7], depth=2, nodes=6)
    assert (cheap.seen[0].path, learned.seen[0].path) == ((0,), (0, 1))
    assert cheap.seen[0].emitted == learned.seen[0].emitted == 3
    drafter.end(state)


def test_it_asks_for_every_feature_a_source_needs() -> None:
    class Wants(Scripted):
        features = FeatureRequest(last=False, layers=(4, 2))

    class Last(Scripted):
        features = FeatureRequest(last=True, layers=(2,))

    drafter = Composite([PromptLookup(), Wants("a"), Last("b")])
    assert drafter.features == FeatureRequest(last=True, layers=(2, 4))
    assert drafter.name == "composite:prompt-lookup+a+b"


def test_specifications_may_have_a_plus_in_a_path(
    tiny_checkpoint: Checkpoint, tmp_path: object
) -> None:
    path = write_drafter(tmp_path / "a+b", tiny_checkpoint, "medusa")  # type: ignore[operator]
    context = DrafterContext(
        target=ReferenceModel(tiny_checkpoint),
        tokenizer=tiny_checkpoint.tokenizer,
        config=EngineConfig(),
    )
    drafter = make_drafter(f"composite:prompt-lookup+medusa:{path}", context)
    assert drafter.name == "composite:prompt-lookup+medusa"
    for spec in ("composite:prompt-lookup", "composite:none+composite:none+none"):
        with pytest.raises(InvalidInput, match="two or more"):
            make_drafter(spec, context)
    with pytest.raises((InvalidInput, UnknownName)):
        make_drafter("composite:prompt-lookup+unknown", context)
