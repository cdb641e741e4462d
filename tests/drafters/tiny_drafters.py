"""Random drafter checkpoints for the tiny target: they prove the path, not the acceptance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from slipstream.drafters.checkpoint import expected_shapes, save_drafter
from slipstream.drafters.checkpoint_config import (
    Architecture,
    DrafterConfig,
    LayerShape,
    TargetIdentity,
)
from slipstream.models.checkpoint import Checkpoint


def identity(target: Checkpoint) -> TargetIdentity:
    return TargetIdentity(
        name=target.name,
        fingerprint=target.fingerprint,
        tokenizer_fingerprint=target.tokenizer.fingerprint,
        hidden_size=target.config.hidden_size,
        vocab_size=target.config.vocab_size,
    )


def config_for(target: Checkpoint, architecture: Architecture, **changes: Any) -> DrafterConfig:
    """A one-layer drafter, or three heads."""
    has_heads = architecture == "medusa"
    settings: dict[str, Any] = {
        "architecture": architecture,
        "target": identity(target),
        "layers": None if has_heads else LayerShape.of(target.config, num_layers=1),
        "heads": 3 if has_heads else 0,
        "license": "Apache-2.0",
        "training": {"tokens": 0, "recipe": "random"},
    }
    return DrafterConfig(**settings | changes)


def random_tensors(config: DrafterConfig, *, seed: int = 0, optional: bool = False) -> Any:
    """Weights large enough that a drafter's guesses vary with what it is fed."""
    rng = np.random.default_rng(seed)
    required, extra = expected_shapes(config)
    shapes = required | (extra if optional else {})
    return {
        name: (
            np.ones(shape) + 0.1 * rng.standard_normal(shape)
            if name.endswith("norm.weight")
            else rng.standard_normal(shape) * 1.5 / np.sqrt(shape[-1])
        ).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_drafter(
    path: Path,
    target: Checkpoint,
    architecture: Architecture,
    *,
    seed: int = 0,
    vocabulary: Any = None,
    optional: bool = False,
    **changes: Any,
) -> Path:
    """Save a random drafter; returns its directory."""
    config = config_for(target, architecture, **changes)
    save_drafter(path, config, random_tensors(config, seed=seed, optional=optional), vocabulary)
    return path


class Tame:
    """A model whose blocks add little, so that the next token hangs on the last one most of all.

    Its features are nearly the normed embeddings of the tokens, which a drafter can know without
    training: drafters of it are accepted often, and still not always.
    """

    def __init__(self, model: Checkpoint, scale: float = 0.35) -> None:
        self._model, self._scale = model, scale
        self.name = f"tame-{model.name}"
        self.config, self.tokenizer = model.config, model.tokenizer
        self.fingerprint = f"{model.fingerprint}-{scale}"
        self.names = model.names
        self.stored = model.stored

    def tensor(self, name: str) -> Any:
        tensor = self._model.tensor(name)
        return (
            tensor * np.float32(self._scale)
            if name.endswith(("o_proj.weight", "down_proj.weight"))
            else tensor
        )


def write_good_eagle(path: Path, target: Checkpoint, **options: Any) -> Path:
    """An EAGLE drafter that takes f_{t+1} for the normed embedding of x_{t+1}; see Tame."""
    config = config_for(target, "eagle")
    hidden = config.target.hidden_size
    tensors = random_tensors(config, optional=True)
    tensors = {name: tensor * np.float32(0.1) for name, tensor in tensors.items()}
    tensors["fc.weight"] = np.concatenate([np.eye(hidden), np.zeros((hidden, hidden))], axis=1)
    tensors["fc.weight"] = tensors["fc.weight"].astype(np.float32)
    tensors["model.norm.weight"] = target.tensor("model.norm.weight")
    save_drafter(path, config, tensors, **options)
    return path


def write_good_draft(path: Path, target: Checkpoint, **options: Any) -> Path:
    """A draft model of the target's first block and final norm."""
    config = config_for(target, "draft")
    tensors = {name: target.tensor(name) for name in expected_shapes(config)[0]}
    save_drafter(path, config, tensors, **options)
    return path
