"""From the name of an architecture to a network at its starting point, and what its file will say.

The defaults here are the recipe of the shipped drafters. Knows no loop.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import torch

from slipstream.drafters.checkpoint import load_drafter
from slipstream.drafters.checkpoint_config import Architecture, DrafterConfig
from slipstream.errors import InvalidInput
from slipstream.training.corpus import Corpus
from slipstream.training.distillation import Objective
from slipstream.training.draft_model import DraftNetwork
from slipstream.training.eagle import EagleNetwork
from slipstream.training.medusa import MedusaNetwork
from slipstream.training.networks import Network
from slipstream.training.target import FrozenTarget

_FIT_BATCHES = 100


def default_layers(target: FrozenTarget) -> tuple[int, ...]:
    """What a draft model starts from: the first three blocks, which read, and the last one."""
    count = target.config.num_layers
    return tuple(sorted({*range(min(3, count)), count - 1}))


def make_network(
    architecture: Architecture,
    target: FrozenTarget,
    corpus: Corpus,
    *,
    layers: Sequence[int] = (),
    heads: int = 4,
    blocks: int = 1,
    seed: int = 0,
) -> Network:
    """A network where its training begins.

    Args:
        layers: of a ``draft``, which blocks to start from; :func:`default_layers` if empty.
        heads: of a ``medusa``.
        blocks: of an ``eagle``.
        seed: of what starts at random.

    Raises:
        InvalidInput: layers the target hasn't got, or too few heads or blocks.
    """
    if architecture == "draft":
        return DraftNetwork.from_target(target, layers or default_layers(target))
    if architecture == "medusa":
        if heads < 1:
            raise InvalidInput(f"a medusa drafter needs at least one head, not {heads}")
        return MedusaNetwork(heads, target.identity.hidden_size)
    if blocks < 1:
        raise InvalidInput(f"an eagle drafter needs at least one block, not {blocks}")
    batches = islice(corpus.batches(0), _FIT_BATCHES)
    return EagleNetwork.from_target(target, batches, layers=blocks, seed=seed)


def start_from(network: Network, drafter: Path, target: FrozenTarget) -> None:
    """Give a network the weights of a drafter that was trained before.

    A drafter of fewer blocks fills the first ones of a network whose further blocks start silent.

    Raises:
        CorruptModel, UnsupportedModel, VocabularyMismatch: damaged, or another target's.
        InvalidInput: of another architecture or size, or of more blocks.
    """
    found = load_drafter(drafter, target.identity)
    own = {name: tuple(value.shape) for name, value in network.state_dict().items()}
    theirs = {name: found.stored(name).shape for name in found.names()}
    added = _further_blocks(network, found.config) if found.config.layers else ()
    if found.config.architecture != network.architecture or theirs != {
        name: shape for name, shape in own.items() if not name.startswith(added)
    }:
        raise InvalidInput(
            f"{drafter} is a drafter of architecture {found.config.architecture!r} whose tensors "
            f"are not those of the {network.architecture!r} that is to be trained"
        )
    weights = {name: torch.from_numpy(found.tensor(name).copy()) for name in theirs}
    network.load_state_dict({**network.state_dict(), **weights})


def _further_blocks(network: Network, config: DrafterConfig) -> tuple[str, ...]:
    """Prefixes of the tensors of an EAGLE network's blocks beyond those that the drafter has."""
    if not isinstance(network, EagleNetwork):
        return ()
    assert network.shape is not None and config.layers is not None
    further = range(config.layers.num_layers, network.shape.num_layers)
    return tuple(f"model.layers.{index}." for index in further)


def default_objective(architecture: Architecture, *, heads: int = 4) -> Objective:
    """What each architecture minimises unless told otherwise."""
    if architecture == "eagle":
        return Objective(depths=3, shallow=0.5, noise=0.05, feature_weight=0.2, others=512)
    if architecture == "medusa":  # the LM head costs more than its heads do
        return Objective(depths=heads, feature_weight=0.0, positions=128, others=512)
    return Objective(depths=1, feature_weight=0.0, others=512)


def describe(network: Network, target: FrozenTarget, license: str) -> DrafterConfig:
    """The configuration of the network's checkpoint."""
    return DrafterConfig(
        architecture=network.architecture,
        target=target.identity,
        layers=network.shape,
        heads=network.head_count,
        license=license,
    )
