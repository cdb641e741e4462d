"""The torch networks give what the drafters' numpy networks give, pass by pass."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.drafters.checkpoint import DrafterCheckpoint, load_drafter
from slipstream.drafters.draft_network import DraftNetwork as NumpyDraft
from slipstream.drafters.network import EagleNetwork as NumpyEagle
from slipstream.drafters.network import MedusaNetwork as NumpyMedusa
from slipstream.drafters.numpy_operators import NumpyOperators
from slipstream.models.base import FeatureRequest, Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.training.decoder import causal_mask, rollout_mask
from slipstream.training.draft_model import DraftNetwork
from slipstream.training.eagle import EagleNetwork, linear_fit
from slipstream.training.medusa import MedusaNetwork
from slipstream.training.networks import Batch, Network
from slipstream.training.recipes import describe
from slipstream.training.target import FrozenTarget
from slipstream.training.training_state import save_network

VOCABULARY = np.arange(3, 300, 2)
LENGTH = 12


def batch_of(tokens: list[list[int]], features: Any) -> Batch:
    """Whole rows as documents of their own, every position learnt."""
    shape = (len(tokens), len(tokens[0]))
    return Batch(
        tokens=torch.tensor(tokens),
        documents=torch.zeros(shape, dtype=torch.int64),
        positions=torch.arange(shape[1]).expand(shape),
        features=torch.as_tensor(features).reshape(*shape, -1).float(),
        learn=torch.ones(shape, dtype=torch.bool),
        temperatures=torch.zeros(shape),
        top_ids=torch.zeros(*shape, 1, dtype=torch.int64),
        normalisers=torch.zeros(shape),
    )


def randomise(network: Any) -> Any:
    draw = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in network.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=draw)
    return network


@pytest.fixture
def text(tiny_reference: ReferenceModel) -> tuple[list[int], Any]:
    """Tokens and the target's features of them."""
    tokens = np.random.default_rng(0).integers(0, 320, LENGTH).tolist()
    handle = tiny_reference.open()
    output = tiny_reference.prefill(handle, tokens, FeatureRequest(last=True))
    return tokens, output.features


def saved(network: Network, target: FrozenTarget, path: Path) -> DrafterCheckpoint:
    config = describe(network, target, "Apache-2.0")
    save_network(path, network, config, VOCABULARY, "f32")
    return load_drafter(path, target.identity)


def head(target: FrozenTarget, hidden: torch.Tensor) -> Any:
    return (hidden @ target.head[torch.from_numpy(VOCABULARY)].T).detach().numpy()


def test_draft_network_equals_the_drafters_own(
    tmp_path: Path, frozen_target: FrozenTarget, tiny_reference: ReferenceModel, text: Any
) -> None:
    tokens, features = text
    network = randomise(DraftNetwork.from_target(frozen_target, [0, 2]))
    numpy = NumpyDraft(saved(network, frozen_target, tmp_path), tiny_reference, NumpyOperators())
    (hidden,) = network(batch_of([tokens], features), frozen_target.embedding, 1)
    output = numpy.forward(Rows.chain(numpy.open(), tokens))
    np.testing.assert_allclose(
        output.logits[:, VOCABULARY], head(frozen_target, hidden[0]), atol=2e-4, rtol=1e-4
    )


def test_a_draft_of_all_blocks_is_the_target(
    frozen_target: FrozenTarget, tiny_checkpoint: Checkpoint, text: Any
) -> None:
    tokens, features = text
    network = DraftNetwork.from_target(frozen_target, range(tiny_checkpoint.config.num_layers))
    (hidden,) = network(batch_of([tokens], features), frozen_target.embedding, 1)
    np.testing.assert_allclose(hidden[0].detach(), features, atol=2e-4, rtol=1e-4)


def test_medusa_heads_equal_the_drafters_own(
    tmp_path: Path, frozen_target: FrozenTarget, tiny_reference: ReferenceModel, text: Any
) -> None:
    tokens, features = text
    network = randomise(MedusaNetwork(3, frozen_target.identity.hidden_size))
    numpy = NumpyMedusa(saved(network, frozen_target, tmp_path), tiny_reference, NumpyOperators())
    predictions = network(batch_of([tokens], features), frozen_target.embedding, 3)
    logits = numpy.forward(features, 3)
    for i, predicted in enumerate(predictions):
        # Head i on the feature at s predicts what is judged at s + i + 1.
        expected = logits[: LENGTH - i - 1, i]
        found = head(frozen_target, predicted[0, i + 1 :])
        np.testing.assert_allclose(expected, found, atol=1e-4, rtol=1e-4)


def test_medusa_starts_as_the_identity(frozen_target: FrozenTarget, text: Any) -> None:
    tokens, features = text
    network = MedusaNetwork(2, frozen_target.identity.hidden_size)
    first, _ = network(batch_of([tokens], features), frozen_target.embedding, 2)
    np.testing.assert_array_equal(first[0, 1:].detach(), features[:-1])


def test_eagle_rollout_equals_drafting_token_by_token(
    tmp_path: Path, frozen_target: FrozenTarget, tiny_reference: ReferenceModel, text: Any
) -> None:
    """From every root, a chain of three drafted on the numpy network, as the drafter does it."""
    tokens, features = text
    batch = batch_of([tokens], features)
    network = randomise(EagleNetwork.from_target(frozen_target, [batch]))
    numpy = NumpyEagle(saved(network, frozen_target, tmp_path), tiny_reference, NumpyOperators())
    predictions = network(batch, frozen_target.embedding, 3)
    for root in range(1, LENGTH - 3):
        handle = numpy.open()
        rows = Rows.chain(handle, tokens[1 : root + 1])
        output = numpy.forward(_with(rows, features[:root]))
        numpy.commit(handle, range(root))
        for depth in range(1, 4):
            at = root + depth - 1
            if depth > 1:
                rows = Rows(
                    sequences=np.array([handle]),
                    tokens=np.array([tokens[at]]),
                    parents=np.array([depth - 3]),
                )
                output = numpy.forward(_with(rows, output.features[-1:]))
            np.testing.assert_allclose(
                output.features[-1], predictions[depth - 1][0, at].detach(), atol=2e-3, rtol=2e-3
            )


def _with(rows: Rows, vectors: Any) -> Rows:
    return Rows(rows.sequences, rows.tokens, rows.parents, None, np.asarray(vectors))


def test_packed_documents_do_not_see_each_other(frozen_target: FrozenTarget, text: Any) -> None:
    tokens, features = text
    alone = batch_of([tokens], features)
    packed = batch_of([tokens * 2], np.concatenate([features, features]))
    halves = torch.arange(2 * LENGTH) // LENGTH
    packed = Batch(
        **{
            **vars(packed),
            "documents": halves[None],
            "positions": (torch.arange(2 * LENGTH) % LENGTH)[None],
        }
    )
    for network in (
        randomise(DraftNetwork.from_target(frozen_target, [0])),
        randomise(EagleNetwork.from_target(frozen_target, [alone])),
    ):
        for one, two in zip(
            network(alone, frozen_target.embedding, 2),
            network(packed, frozen_target.embedding, 2),
            strict=True,
        ):
            first = 1 if network.architecture == "eagle" else 0  # a first token isn't predicted
            torch.testing.assert_close(
                one[0, first:], two[0, LENGTH + first :], atol=1e-4, rtol=1e-4
            )


def test_rollout_masks_show_the_drafted_path_only() -> None:
    documents, usable = torch.zeros(1, 5, dtype=torch.int64), torch.ones(1, 5, dtype=torch.bool)
    assert torch.equal(rollout_mask(documents, usable, 1), causal_mask(documents))
    first, second, third = rollout_mask(documents, usable, 3)[0, 0].split(5, dim=-1)
    assert first[4].tolist() == [True, True, True, False, False]
    assert second[4].tolist() == [False, False, False, True, False]
    assert third[4].tolist() == [False, False, False, False, True]


def test_eagle_starts_at_the_least_squares_fit(frozen_target: FrozenTarget) -> None:
    draw = torch.Generator().manual_seed(0)
    hidden = frozen_target.identity.hidden_size
    tokens = torch.randint(0, 320, (4, 200), generator=draw)
    truth = torch.randn(hidden, hidden, generator=draw) / hidden**0.5
    features = frozen_target.embedding[tokens] @ truth.T + 0.5
    batch = batch_of(tokens.tolist(), features)
    weight, bias = linear_fit([batch], frozen_target.embedding, ridge=1e-8)
    inputs = torch.cat([frozen_target.embedding[tokens[:, 1:]], features[:, :-1]], -1)
    torch.testing.assert_close(inputs @ weight.T + bias, features[:, 1:], atol=1e-2, rtol=1e-2)
    network = EagleNetwork.from_target(frozen_target, [batch])
    (predicted,) = network(batch, frozen_target.embedding, 1)
    torch.testing.assert_close(predicted[:, 1:], features[:, 1:], atol=0.1, rtol=0.1)
