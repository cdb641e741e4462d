"""A tiny target's own text, written once, and everything a trainer needs to learn from it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from slipstream.config import EngineConfig
from slipstream.engine.engine import Engine
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.loader import open_checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.training.manifest import DataSettings, open_data
from slipstream.training.recording import RecordingTarget
from slipstream.training.selfdata import make_data
from slipstream.training.shards import read_shard
from slipstream.training.target import FrozenTarget

SELF_WRITTEN = DataSettings(
    conversations=24,
    temperatures=(0.0, 1.0),
    user_tokens=24,
    answer_tokens=24,
    held_out=0.2,
    top=4,
    openings=("", "dog ", "draft "),
)
ANSWERED = DataSettings(
    source="prompts",
    conversations=30,
    temperatures=(0.0, 0.0, 1.0),
    answer_tokens=48,
    held_out=0.2,
    top=4,
)
WORDS = (
    *("the", "quick", "brown", "fox", "jumps", "over", "lazy", "dog", "drafts", "a", "few"),
    *("tokens", "and", "target", "verifies", "kept", "thrown", "away"),
)


@pytest.fixture(autouse=True)
def one_thread() -> Any:
    """Sums in one order, and no fight over the machine's cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def self_settings() -> DataSettings:
    return SELF_WRITTEN


@pytest.fixture(scope="session")
def recording_engine(tiny_checkpoint: Checkpoint) -> Engine:
    return recording(tiny_checkpoint)


def recording(checkpoint: Checkpoint) -> Engine:
    return Engine(
        RecordingTarget(ReferenceModel(checkpoint), top=4),
        tokenizer=checkpoint.tokenizer,
        drafter="none",
        k=0,
        config=EngineConfig(max_batch=32),
    )


@pytest.fixture(scope="session")
def easy_model_dir(
    make_tiny_model: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A random target that can be learnt from little text: sure of itself, and short-sighted.

    Its blocks add little to the stream, so what comes next depends on the last token for the most.
    """
    directory = make_tiny_model(
        tmp_path_factory.mktemp("models") / "easy", tie_word_embeddings=False
    )
    tensors = load_file(directory / "model.safetensors")
    for name, tensor in tensors.items():
        if name.endswith(("o_proj.weight", "down_proj.weight")):
            tensor *= 0.3
    tensors["lm_head.weight"] *= 2
    tensors["model.embed_tokens.weight"] *= 6
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="session")
def easy_target(easy_model_dir: Path) -> FrozenTarget:
    return FrozenTarget.from_checkpoint(open_checkpoint(easy_model_dir))


@pytest.fixture(scope="session")
def easy_data(easy_model_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards of that target's answers."""
    return answers(recording(open_checkpoint(easy_model_dir)), tmp_path_factory.mktemp("easy"))


@pytest.fixture(scope="session")
def self_data(recording_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two shards in which the tiny target asks as well as answers."""
    directory = tmp_path_factory.mktemp("self")
    make_data(recording_engine, directory, SELF_WRITTEN, 150)
    while len(open_data(directory).shards) < 2:
        tokens = sum(len(read_shard(path).tokens) for path in open_data(directory).shards)
        make_data(recording_engine, directory, SELF_WRITTEN, tokens + 1)
    return directory


@pytest.fixture(scope="session")
def tiny_data(recording_engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four shards of the tiny target's answers, mostly greedy ones."""
    return answers(recording_engine, tmp_path_factory.mktemp("data"))


def answers(engine: Engine, directory: Path) -> Path:
    draw = np.random.default_rng(0)
    texts = [
        [{"role": "user", "content": " ".join(draw.choice(WORDS, 6))}]
        for _ in range(4 * ANSWERED.conversations)
    ]
    make_data(engine, directory, ANSWERED, 10**9, texts=texts)
    return directory


@pytest.fixture(scope="session")
def frozen_target(tiny_checkpoint: Checkpoint) -> FrozenTarget:
    return FrozenTarget.from_checkpoint(tiny_checkpoint)
