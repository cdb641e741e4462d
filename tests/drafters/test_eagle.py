"""EAGLE's cache is a function of the committed tokens; its rows stand where the paper puts them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.config import EngineConfig, SamplingParams
from slipstream.drafters.base import Budget, Drafter, Observation
from slipstream.drafters.registry import DrafterContext, make_drafter
from slipstream.errors import InvalidInput, UnsupportedModel
from slipstream.models.base import FeatureRequest, ForwardOutput, Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.types import ROOT, Draft, Gumbel, SequenceState
from tests.drafters.tiny_drafters import Tame, write_drafter, write_good_eagle

WANTED = FeatureRequest(last=True)
START = [5, 9, 17, 30, 2, 7]


@pytest.fixture(scope="module")
def target(tiny_checkpoint: Checkpoint) -> Checkpoint:
    return Tame(tiny_checkpoint)


@pytest.fixture(scope="module")
def model(target: Checkpoint) -> ReferenceModel:
    return ReferenceModel(target)


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory: pytest.TempPathFactory, target: Checkpoint) -> Path:
    path = tmp_path_factory.mktemp("drafters")
    write_good_eagle(path / "eagle", target)
    write_drafter(path / "random", target, "eagle", optional=True, vocabulary=range(0, 320, 2))
    write_drafter(path / "medusa", target, "medusa")
    return path


def build(spec: str, target: Checkpoint, model: ReferenceModel, **options: Any) -> Drafter:
    context = DrafterContext(
        target=model, tokenizer=target.tokenizer, config=EngineConfig(), **options
    )
    return make_drafter(spec, context)


def state(tokens: Sequence[int], uid: int = 0, **params: Any) -> SequenceState:
    settings = SamplingParams(**{"temperature": 1.0} | params)
    return SequenceState(uid, list(tokens), 3, settings, 11)


def true_features(model: ReferenceModel, tokens: Sequence[int]) -> ForwardOutput | None:
    """Features of all tokens but the last, as a prefill gives them."""
    handle = model.open()
    output = model.prefill(handle, list(tokens[:-1]), WANTED) if len(tokens) > 1 else None
    model.close(handle)
    return output


class Text:
    """A target's side of the loop, with verdicts that a test decides."""

    def __init__(
        self, model: ReferenceModel, drafter: Drafter, tokens: Sequence[int], uid: int = 0
    ):
        self._model, self._drafter = model, drafter
        self.state = state(tokens, uid)
        self._handle = model.open()
        prompt = list(tokens[:-1])
        drafter.begin(self.state, model.prefill(self._handle, prompt, WANTED) if prompt else None)

    def draft(self, depth: int, nodes: int) -> Draft:
        budget = Budget(depth=depth, nodes=nodes)
        return self._drafter.propose([self.state], [budget], "gumbel")[0]

    def accept(self, draft: Draft, path: Sequence[int], token: int) -> None:
        """Commit a path of the draft and one token more."""
        tokens = [self.state.tokens[-1], *draft.tree.tokens]
        parents = [-1, *(parent + 1 for parent in draft.tree.parents)]
        rows = Rows(
            np.full(len(tokens), self._handle), np.array(tokens), np.array(parents, np.int64)
        )
        output = self._model.forward(rows, WANTED)
        kept = [0, *(node + 1 for node in path)]
        self._model.commit(self._handle, kept)
        assert output.features is not None
        features = ForwardOutput(logits=output.logits[:0], features=output.features[kept])
        self.state.tokens += [draft.tree.tokens[node] for node in path] + [token]
        self._drafter.observe([Observation(self.state, len(path) + 1, tuple(path), features)])

    def close(self) -> None:
        self._drafter.end(self.state)
        self._model.close(self._handle)


def same(one: Draft, other: Draft) -> None:
    """Equal trees, and receipts equal up to rounding."""
    assert one.tree == other.tree
    for a, b in zip(one.receipts, other.receipts, strict=True):
        assert type(a) is type(b)
        if isinstance(a, Gumbel) and isinstance(b, Gumbel):
            np.testing.assert_allclose(a.probs, b.probs, rtol=2e-4, atol=1e-7)


def random_path(draft: Draft, rng: np.random.Generator) -> list[int]:
    path: list[int] = []
    node = ROOT
    while (children := draft.tree.children(node)) and rng.random() < 0.7:
        node = int(rng.choice(children))
        path.append(node)
    return path


@pytest.mark.parametrize("spec", ["eagle:{}/eagle", "eagle2:{}/random", "medusa:{}/medusa"])
def test_after_any_cycles_the_state_equals_one_rebuilt_from_scratch(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel, spec: str
) -> None:
    rng = np.random.default_rng(3)
    drafter = build(spec.format(checkpoints), target, model)
    text = Text(model, drafter, START)
    budgets = [(3, 6), (0, 0), (2, 2), (4, 12), (0, 0), (0, 0), (1, 4), (3, 9)] * 2
    for cycle, (depth, nodes) in enumerate(budgets):
        if cycle == 9:  # a restart: the request begins again with the text so far
            tokens = text.state.tokens
            text.close()
            text = Text(model, drafter, tokens)
        draft = text.draft(depth, nodes)
        assert len(draft) <= nodes and max(draft.tree.depths, default=0) <= depth

        fresh = build(spec.format(checkpoints), target, model)
        fresh.begin(text.state, true_features(model, text.state.tokens))
        again = fresh.propose([text.state], [Budget(depth=depth, nodes=nodes)], "gumbel")[0]
        same(draft, again)
        text.accept(draft, random_path(draft, rng), int(rng.integers(320)))
    text.close()


def test_the_rows_are_those_of_the_paper(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel
) -> None:
    """q after x_0 … x_{n-1} comes from rows (f_t, embedding of x_{t+1}), t = 0 … n - 2."""
    drafter = build(f"eagle:{checkpoints}/random", target, model)
    sequence = state(START)
    prompt = true_features(model, START)
    assert prompt is not None and prompt.features is not None
    drafter.begin(sequence, prompt)
    draft = drafter.propose([sequence], [Budget(depth=3, nodes=3)], "gumbel")[0]

    network = drafter._network  # type: ignore[attr-defined]
    handle = network.open()
    tokens, features = START[1:], list(prompt.features)
    for depth, receipt in enumerate(draft.receipts[:3]):
        rows = Rows.chain(handle, tokens)
        rows = Rows(rows.sequences, rows.tokens, rows.parents, vectors=np.array(features))
        output = network.forward(rows)
        network.commit(handle, [])
        logits = np.full(320, -np.inf, np.float32)
        logits[::2] = output.logits[-1]
        weights = np.exp(logits - logits.max())
        assert isinstance(receipt, Gumbel)
        np.testing.assert_allclose(receipt.probs, weights / weights.sum(), rtol=1e-4, atol=1e-7)
        tokens = [*tokens, draft.tree.tokens[depth]]
        features = [*features, output.features[-1]]  # predicted ones from here on
    drafter.end(sequence)


def test_a_tree_costs_one_network_pass_a_level_for_all_sequences(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = build(f"eagle2:{checkpoints}/eagle", target, model)
    network = drafter._network  # type: ignore[attr-defined]
    passes: list[int] = []
    forward = network.forward

    def counting(rows: Rows) -> ForwardOutput:
        passes.append(len(rows))
        return forward(rows)  # type: ignore[no-any-return]

    monkeypatch.setattr(network, "forward", counting)
    states = [state([*START, 40 + uid], uid) for uid in range(3)]
    for sequence in states:
        drafter.begin(sequence, true_features(model, sequence.tokens))
    budgets = [Budget(depth=depth, nodes=9) for depth in (3, 0, 2)]
    drafts = drafter.propose(states, budgets, "gumbel")
    assert [bool(len(draft)) for draft in drafts] == [True, False, True]
    assert len(passes) == 3  # the root's rows, then two levels: the third is not fed
    assert passes[0] == 2 * len(START)
    for sequence, budget, draft in zip(states, budgets, drafts, strict=True):
        alone = build(f"eagle2:{checkpoints}/eagle", target, model)
        alone.begin(sequence, true_features(model, sequence.tokens))
        same(draft, alone.propose([sequence], [budget], "gumbel")[0])


def test_a_prompt_of_one_token_has_no_feature_and_so_no_draft_yet(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel
) -> None:
    for spec in ("eagle2:{}/eagle", "medusa:{}/medusa"):
        drafter = build(spec.format(checkpoints), target, model)
        text = Text(model, drafter, START[:1])
        draft = text.draft(3, 8)
        assert len(draft) == 0
        text.accept(draft, [], 4)
        assert len(text.draft(3, 8)) > 0
        text.close()


def test_a_long_prompt_is_fed_in_chunks_to_the_same_effect(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = []
    tokens = np.random.default_rng(1).integers(0, 320, 40).tolist()
    for chunk in (256, 7):
        monkeypatch.setattr("slipstream.drafters.eagle._CHUNK", chunk)
        drafter = build(f"eagle:{checkpoints}/eagle", target, model)
        states = [state(tokens, 0), state(tokens[:12], 1)]
        for sequence in states:
            drafter.begin(sequence, true_features(model, sequence.tokens))
        drafts.append(drafter.propose(states, [Budget(depth=3, nodes=7)] * 2, "gumbel"))
    for one, other in zip(*drafts, strict=True):
        same(one, other)


def test_at_the_end_of_its_context_it_drafts_less_and_then_nothing(
    tmp_path: Path, target: Checkpoint, model: ReferenceModel
) -> None:
    import dataclasses

    from slipstream.drafters.checkpoint_config import LayerShape

    shape = dataclasses.replace(LayerShape.of(target.config, num_layers=1), max_context=9)
    write_drafter(tmp_path, target, "eagle", layers=shape)
    drafter = build(f"eagle2:{tmp_path}", target, model)
    text = Text(model, drafter, START)
    depths = []
    for token in range(8):
        draft = text.draft(4, 9)
        depths.append(max(draft.tree.depths, default=0))
        text.accept(draft, [], token)
    assert depths == [4, 4, 3, 2, 1, 0, 0, 0]
    text.close()
    long = Text(model, drafter, list(range(30)))
    assert len(long.draft(4, 9)) == 0
    long.close()


def test_nothing_is_left_when_a_request_ends(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel
) -> None:
    drafter = build(f"eagle:{checkpoints}/eagle", target, model)
    text = Text(model, drafter, START)
    text.draft(3, 8)
    text.close()
    assert not drafter._cached  # type: ignore[attr-defined]
    assert not drafter._network._decoder._stack._model._caches  # type: ignore[attr-defined]
    drafter.end(text.state)  # a second end, or one without a beginning, does no harm


@pytest.mark.parametrize("name", ["eagle", "eagle2", "medusa"])
def test_without_a_shipped_drafter_the_error_says_how_to_make_one(
    target: Checkpoint, model: ReferenceModel, name: str
) -> None:
    architecture = name.rstrip("2")
    with pytest.raises(InvalidInput, match=f"slipstream train {architecture}"):
        build(name, target, model)


def test_a_checkpoint_of_another_kind_is_refused(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=r"is a medusa drafter.*medusa:"):
        build(f"eagle:{checkpoints}/medusa", target, model)
    with pytest.raises(UnsupportedModel, match="no Slipstream drafter"):
        build(f"eagle:{tmp_path}", target, model)
    with pytest.raises(InvalidInput, match="no drafter at"):
        build("eagle:nowhere", target, model)


@pytest.mark.parametrize("spec", ["eagle:{}/eagle", "eagle2:{}/eagle", "medusa:{}/medusa"])
def test_no_node_has_more_children_than_the_width_allows(
    checkpoints: Path, target: Checkpoint, model: ReferenceModel, spec: str
) -> None:
    for width in (1, 2, 3):
        drafter = build(spec.format(checkpoints), target, model, tree_width=width)
        sequence = state(START)
        drafter.begin(sequence, true_features(model, START))
        [draft] = drafter.propose([sequence], [Budget(depth=3, nodes=12)], "gumbel")
        drafter.end(sequence)
        widest = max(len(draft.tree.children(node)) for node in range(ROOT, len(draft)))
        assert widest == width
