"""Drafter networks in numpy: branches are blind to each other, and the formulas are the papers'."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.drafters.checkpoint import load_drafter
from slipstream.drafters.draft_network import DraftNetwork
from slipstream.drafters.network import EagleNetwork, MedusaNetwork, operators_for, shared_weights
from slipstream.drafters.numpy_operators import NumpyOperators
from slipstream.errors import InvalidInput, PromptTooLong, Unsupported
from slipstream.models.base import PREFIX, FeatureRequest, Rows, TargetModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from tests.drafters.tiny_drafters import write_drafter, write_good_draft
from tests.engine.table_model import TableModel

VOCABULARY = np.arange(0, 320, 3)


@pytest.fixture(scope="module")
def model(tiny_checkpoint: Checkpoint) -> ReferenceModel:
    return ReferenceModel(tiny_checkpoint)


@pytest.mark.parametrize("optional", [False, True])
def test_eagle_rows_of_a_tree_equal_each_branch_alone(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel, optional: bool
) -> None:
    path = write_drafter(
        tmp_path, tiny_checkpoint, "eagle", vocabulary=VOCABULARY, optional=optional
    )
    network = EagleNetwork(load_drafter(path), model, NumpyOperators())
    rng = np.random.default_rng(0)
    tokens, features = rng.integers(0, 320, 7), rng.normal(size=(7, 48)).astype(np.float32)
    parents = np.array([PREFIX, 0, 0, 1, 2, 2, PREFIX])
    prefix = Rows(np.zeros(3, np.int64), tokens[:3], np.arange(-1, 2), vectors=features[:3])

    def after_prefix() -> int:
        handle = network.open()
        network.forward(
            Rows(prefix.sequences + handle, tokens[:3], prefix.parents, None, features[:3])
        )
        network.commit(handle, [0, 1, 2])
        return handle

    handle = after_prefix()
    whole = network.forward(Rows(np.full(7, handle), tokens, parents, None, features))
    assert whole.logits.shape == (7, len(VOCABULARY))
    for row in range(7):
        path_to = [row]
        while parents[path_to[0]] != PREFIX:
            path_to.insert(0, int(parents[path_to[0]]))
        alone = after_prefix()
        rows = Rows.chain(alone, tokens[path_to].tolist())
        output = network.forward(
            Rows(rows.sequences, rows.tokens, rows.parents, None, features[path_to])
        )
        np.testing.assert_allclose(output.logits[-1], whole.logits[row], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(output.features[-1], whole.features[row], rtol=1e-4, atol=1e-4)  # type: ignore[index]
        network.close(alone)


def test_eagle_gives_logits_only_where_they_are_wanted(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    network = EagleNetwork(
        load_drafter(write_drafter(tmp_path, tiny_checkpoint, "eagle")), model, NumpyOperators()
    )
    handle = network.open()
    rows = Rows.chain(handle, [1, 2, 3])
    wants = np.array([False, False, True])
    output = network.forward(
        Rows(rows.sequences, rows.tokens, rows.parents, wants, np.ones((3, 48), np.float32))
    )
    assert output.logits.shape == (1, 320) and output.features.shape == (3, 48)  # type: ignore[union-attr]


def test_medusa_heads_are_the_papers(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    checkpoint = load_drafter(
        write_drafter(tmp_path, tiny_checkpoint, "medusa", vocabulary=VOCABULARY)
    )
    network = MedusaNetwork(checkpoint, model, NumpyOperators())
    features = np.random.default_rng(0).normal(size=(2, 48)).astype(np.float32)
    logits = network.forward(features, 2)
    assert logits.shape == (2, 2, len(VOCABULARY)) and len(network) == 3
    head = tiny_checkpoint.tensor("model.embed_tokens.weight")[VOCABULARY]
    for i in range(2):
        inner = features @ checkpoint.tensor(f"heads.{i}.linear.weight").T
        inner = inner + checkpoint.tensor(f"heads.{i}.linear.bias")
        expected = (features + inner / (1 + np.exp(-inner))) @ head.T
        np.testing.assert_allclose(logits[:, i], expected, rtol=1e-4, atol=1e-4)


def test_a_draft_of_all_the_targets_blocks_is_the_target(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    from slipstream.drafters.checkpoint import expected_shapes, save_drafter
    from slipstream.drafters.checkpoint_config import LayerShape
    from tests.drafters.tiny_drafters import config_for

    layers = LayerShape.of(tiny_checkpoint.config, num_layers=3)
    config = config_for(tiny_checkpoint, "draft", layers=layers)
    tensors = {name: tiny_checkpoint.tensor(name) for name in expected_shapes(config)[0]}
    save_drafter(tmp_path, config, tensors)
    draft = DraftNetwork(load_drafter(tmp_path), model, NumpyOperators())
    assert isinstance(draft, TargetModel)

    tokens = [4, 9, 100, 7, 33]
    theirs, ours = model.open(), draft.open()
    expected = model.forward(Rows.chain(theirs, tokens)).logits
    np.testing.assert_allclose(draft.forward(Rows.chain(ours, tokens)).logits, expected, atol=1e-4)
    draft.commit(ours, [])
    draft.prefill(ours, tokens[:3])
    assert draft.length(ours) == 3
    last = draft.forward(Rows.chain(ours, tokens[3:])).logits
    np.testing.assert_allclose(last, expected[3:], atol=1e-4)
    draft.truncate(ours, 1)
    assert draft.length(ours) == 1


def test_a_trimmed_draft_can_not_propose_what_it_lacks(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    full = DraftNetwork(
        load_drafter(write_good_draft(tmp_path / "a", tiny_checkpoint)), model, NumpyOperators()
    )
    trimmed = DraftNetwork(
        load_drafter(write_good_draft(tmp_path / "b", tiny_checkpoint, vocabulary=VOCABULARY)),
        model,
        NumpyOperators(),
    )
    one = full.forward(Rows.chain(full.open(), [1, 2])).logits
    other = trimmed.forward(Rows.chain(trimmed.open(), [1, 2])).logits
    assert one.shape == other.shape
    np.testing.assert_allclose(other[:, VOCABULARY], one[:, VOCABULARY], atol=1e-5)
    assert np.isneginf(np.delete(other, VOCABULARY, axis=1)).all()


def test_a_draft_network_refuses_what_a_target_refuses(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    draft = DraftNetwork(
        load_drafter(write_good_draft(tmp_path, tiny_checkpoint)), model, NumpyOperators()
    )
    handle = draft.open()
    with pytest.raises(InvalidInput, match="outside the vocabulary"):
        draft.forward(Rows.chain(handle, [1, 320]))
    with pytest.raises(PromptTooLong):
        draft.prefill(handle, [1] * 600)
    assert draft.length(handle) == 0
    with pytest.raises(Unsupported, match="no features"):
        draft.forward(Rows.chain(handle, [1]), FeatureRequest(last=True))


def test_a_target_that_lends_nothing_can_not_carry_a_learned_drafter(
    model: ReferenceModel,
) -> None:
    assert shared_weights(model) is model
    assert isinstance(operators_for(model, EngineConfig()), NumpyOperators)
    with pytest.raises(Unsupported, match="doesn't share its embedding"):
        shared_weights(TableModel(8, seed=0))


@pytest.mark.parametrize("optional", [False, True])
def test_the_compiled_core_runs_the_same_networks(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel, optional: bool
) -> None:
    """With float32 weights it differs from numpy by rounding only; trees and trimming included."""
    if not kernels.available():
        return  # an installation without the core has nothing to compare
    from slipstream.models.native import NativeModel

    config = EngineConfig(weights="f32", threads=1)
    native = NativeModel(tiny_checkpoint, config)
    path = write_drafter(
        tmp_path / "e", tiny_checkpoint, "eagle", vocabulary=VOCABULARY, optional=optional
    )
    features = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
    parents = np.array([PREFIX, 0, 0, 1, 2])
    medusa = load_drafter(write_drafter(tmp_path / "m", tiny_checkpoint, "medusa"))
    outputs, lent = [], []
    for lender in (model, native):
        operators = operators_for(lender, config)
        network = EagleNetwork(load_drafter(path), lender, operators)
        handle = network.open()
        network.forward(Rows(np.full(2, handle), np.array([7, 8]), parents[:2], None, features[:2]))
        network.commit(handle, [0, 1])
        rows = Rows(np.full(5, handle), np.arange(5) + 30, parents, None, features)
        outputs.append(network.forward(rows))
        lent.append(MedusaNetwork(medusa, lender, operators).forward(features, 3))
    np.testing.assert_allclose(lent[1], lent[0], rtol=1e-3, atol=1e-3)
    reference, compiled = outputs
    assert type(operators).__name__ == "NativeOperators"
    np.testing.assert_allclose(compiled.logits, reference.logits, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(compiled.features, reference.features, rtol=1e-3, atol=1e-3)  # type: ignore[arg-type]


def test_small_weights_and_activations_guess_nearly_the_same(
    tmp_path: Path, tiny_checkpoint: Checkpoint, model: ReferenceModel
) -> None:
    """What the core runs unless the target is float32: int8 activations and a 4-bit head."""
    if not kernels.available():
        return
    from slipstream.models.native import NativeModel

    native = NativeModel(tiny_checkpoint, EngineConfig(threads=1))
    eagle = load_drafter(
        write_drafter(tmp_path / "e", tiny_checkpoint, "eagle", vocabulary=VOCABULARY)
    )
    draft = load_drafter(write_good_draft(tmp_path / "d", tiny_checkpoint))
    medusa = load_drafter(write_drafter(tmp_path / "m", tiny_checkpoint, "medusa"))
    features = np.random.default_rng(0).normal(size=(5, 48)).astype(np.float32)
    results = []
    for lender in (model, native):
        operators = operators_for(lender, EngineConfig(threads=1))
        one, other = EagleNetwork(eagle, lender, operators), DraftNetwork(draft, lender, operators)
        rows = Rows.chain(one.open(), [30, 31, 32, 33, 34])
        fed = Rows(rows.sequences, rows.tokens, rows.parents, None, features)
        heads = MedusaNetwork(medusa, lender, operators).forward(features, 2)
        logits = other.trimmed_logits(Rows.chain(other.open(), [7, 8, 9]))
        results.append([one.forward(fed).logits, logits, heads])
        with pytest.raises(InvalidInput):
            other.commit(0, [5])
        with pytest.raises(InvalidInput):
            other.truncate(0, 9)
        with pytest.raises(InvalidInput):
            other.forward(Rows(np.zeros(1, np.int64), np.zeros(1, np.int64), np.array([50])))
    for exact, rounded in zip(*results, strict=True):
        assert np.corrcoef(np.ravel(exact), np.ravel(rounded))[0, 1] > 0.98


def test_rows_in_the_core_depend_on_no_others_however_many(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    """Prompts of many requests are more rows than the core takes at once."""
    if not kernels.available():
        return
    from slipstream.models.native import MAX_ROWS, NativeModel

    config = EngineConfig(threads=1)
    native = NativeModel(tiny_checkpoint, config)
    path = write_drafter(tmp_path, tiny_checkpoint, "eagle", vocabulary=VOCABULARY)
    network = EagleNetwork(load_drafter(path), native, operators_for(native, config))
    rng = np.random.default_rng(0)
    each, count = 256, MAX_ROWS // 256 + 1
    tokens, features = rng.integers(0, 320, each * count), rng.normal(size=(each * count, 48))
    features = features.astype(np.float32)

    handles = [network.open() for _ in range(count)]
    parents = np.tile(np.arange(-1, each - 1), count)
    many = network.forward(Rows(np.repeat(handles, each), tokens, parents, None, features))
    for request, handle in enumerate(handles):
        part = slice(request * each, (request + 1) * each)
        network.commit(handle, range(each))
        rows = Rows.chain(network.open(), tokens[part].tolist())
        alone = network.forward(
            Rows(rows.sequences, rows.tokens, rows.parents, None, features[part])
        )
        np.testing.assert_array_equal(alone.logits, many.logits[part])
        np.testing.assert_array_equal(alone.features, many.features[part])  # type: ignore[arg-type,index]
