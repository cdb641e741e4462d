"""Drafter checkpoints: what is saved is what loads, and what doesn't fit is refused."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.drafters.checkpoint import (
    CONFIG,
    VOCABULARY_MAP,
    WEIGHTS,
    add_targets,
    describe,
    is_drafter,
    load_drafter,
    save_drafter,
)
from slipstream.drafters.checkpoint_config import ARCHITECTURES, Architecture, DrafterConfig
from slipstream.drafters.storage import store
from slipstream.errors import (
    CorruptModel,
    InvalidInput,
    ModelError,
    UnsupportedModel,
    VocabularyMismatch,
)
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.dequantize import dequantize
from slipstream.models.safetensors_file import Container, read_container, write_container
from tests.drafters.tiny_drafters import config_for, identity, random_tensors, write_drafter


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("trimmed", [False, True])
def test_a_saved_drafter_loads_with_the_same_weights(
    tmp_path: Path, tiny_checkpoint: Checkpoint, architecture: Architecture, trimmed: bool
) -> None:
    config = config_for(tiny_checkpoint, architecture, rank_accuracy=((0.5, 0.25), (0.25,)))
    tensors = random_tensors(config, optional=trimmed)
    vocabulary = [3, 5, 200] if trimmed else None
    save_drafter(tmp_path / "d", config, tensors, vocabulary)

    loaded = load_drafter(tmp_path / "d", identity(tiny_checkpoint))
    assert loaded.config == config
    assert set(loaded.names()) == set(tensors)
    for name, tensor in tensors.items():
        assert np.array_equal(loaded.tensor(name), tensor)
    assert (None if loaded.vocabulary is None else loaded.vocabulary.tolist()) == vocabulary
    assert is_drafter(tmp_path / "d") and not is_drafter(tmp_path)


def test_bfloat16_rounds_to_nearest_even() -> None:
    halfway = np.float32(1.0) + np.float32(2.0**-8)  # between 1 and 1 + 2^-7: to even, 1
    above = np.float32(1.0) + np.float32(
        3 * 2.0**-8
    )  # between 1 + 2^-7 and 1 + 2^-6: to the latter
    stored = store(np.array([halfway, above, -halfway], np.float32), "bf16")
    assert dequantize(stored).tolist() == [1.0, 1.0 + 2.0**-6, -1.0]


def test_small_formats_keep_the_weights_and_the_names_of_their_formats(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    target = dataclasses.replace(identity(tiny_checkpoint), hidden_size=64)
    config = dataclasses.replace(config_for(tiny_checkpoint, "medusa"), target=target)
    tensors = random_tensors(config)
    stored = {
        name: store(tensor, "q8_0" if tensor.ndim == 2 else "bf16")
        for name, tensor in tensors.items()
    }
    save_drafter(tmp_path, config, stored)
    loaded = load_drafter(tmp_path)
    assert loaded.config.formats == {f"heads.{i}.linear.weight": "q8_0" for i in range(3)}
    for name, tensor in tensors.items():
        step = np.abs(tensor).max() / 100
        assert np.abs(loaded.tensor(name) - tensor).max() < step
        assert loaded.stored(name).format == stored[name].format
    plain = sum(tensor.nbytes for tensor in tensors.values())
    assert (tmp_path / WEIGHTS).stat().st_size < 0.32 * plain


def test_q8_0_is_ggmls() -> None:
    from gguf import GGMLQuantizationType
    from gguf.quants import quantize

    weights = np.random.default_rng(0).normal(size=(16, 96)).astype(np.float32)
    theirs = quantize(weights, GGMLQuantizationType.Q8_0)
    ours = store(weights, "q8_0")
    assert ours.data.shape == theirs.shape
    reference = dequantize(dataclasses.replace(ours, data=theirs))
    step = np.abs(weights).max() / 127
    assert np.abs(dequantize(ours) - weights).max() <= np.abs(reference - weights).max() + step / 50
    assert np.mean(ours.data == theirs) > 0.98
    assert not dequantize(store(np.zeros((1, 32)), "q8_0")).any()


def test_q8_0_needs_rows_of_whole_blocks() -> None:
    with pytest.raises(InvalidInput, match="multiple of 32"):
        store(np.zeros((4, 48), np.float32), "q8_0")


def test_description_says_what_it_is(tmp_path: Path, tiny_checkpoint: Checkpoint) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "eagle", vocabulary=range(100))
    about = describe(tmp_path)
    assert about["architecture"] == "eagle" and about["target"] == tiny_checkpoint.name
    assert (about["vocabulary"], about["target_vocabulary"]) == (100, 320)
    assert about["license"] == "Apache-2.0" and about["training"]["recipe"] == "random"
    json.dumps(about)


@pytest.mark.parametrize(
    ("field", "value", "error", "reason"),
    [
        ("tokenizer_fingerprint", "another", VocabularyMismatch, "tokenizer"),
        ("fingerprint", "another", UnsupportedModel, "fingerprint another"),
        ("hidden_size", 64, UnsupportedModel, "hidden_size 64"),
        ("vocab_size", 321, UnsupportedModel, "vocab_size 321"),
    ],
)
def test_another_target_is_refused(
    tmp_path: Path,
    tiny_checkpoint: Checkpoint,
    field: str,
    value: Any,
    error: type[Exception],
    reason: str,
) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "eagle")
    other = dataclasses.replace(identity(tiny_checkpoint), **{field: value})
    with pytest.raises(error, match=reason):
        load_drafter(tmp_path, other)
    if field != "fingerprint":  # the network can't run there, or speaks of other tokens
        with pytest.raises(error, match=reason):
            load_drafter(tmp_path, other, allow_other_target=True)


def test_another_model_of_the_same_sizes_and_tokens_can_be_allowed(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "eagle")
    other = dataclasses.replace(identity(tiny_checkpoint), fingerprint="another")
    with pytest.raises(UnsupportedModel, match=r"output stays exact.*--allow-other-target"):
        load_drafter(tmp_path, other)
    assert load_drafter(tmp_path, other, allow_other_target=True).config.architecture == "eagle"


def test_a_checkpoint_can_name_further_models_that_it_drafts_for(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "eagle", vocabulary=range(100))
    before = load_drafter(tmp_path)
    add_targets(tmp_path, ["quantised"])
    add_targets(tmp_path, ["otherwise", "quantised"])
    trained_for = identity(tiny_checkpoint)
    for fingerprint in (trained_for.fingerprint, "quantised", "otherwise"):
        loaded = load_drafter(tmp_path, dataclasses.replace(trained_for, fingerprint=fingerprint))
    assert describe(tmp_path)["further_targets"] == ["quantised", "otherwise"]
    for name in before.names():
        np.testing.assert_array_equal(loaded.tensor(name), before.tensor(name))
    np.testing.assert_array_equal(loaded.vocabulary, before.vocabulary)
    with pytest.raises(UnsupportedModel, match="fingerprint third"):
        load_drafter(tmp_path, dataclasses.replace(trained_for, fingerprint="third"))


@pytest.mark.parametrize(
    ("change", "error", "reason"),
    [
        (lambda c: c.update(colour="blue"), UnsupportedModel, "unknown field 'colour'"),
        (lambda c: c["target"].update(x=1), UnsupportedModel, "target: unknown field 'x'"),
        (lambda c: c["layers"].update(x=1), UnsupportedModel, "layers: unknown field 'x'"),
        (lambda c: c.update(architecture="hydra"), UnsupportedModel, "hydra.*medusa"),
        (lambda c: c.update(architecture="medusa"), UnsupportedModel, "has heads and no layers"),
        (lambda c: c.update(architecture="draft"), CorruptModel, "norm.weight.*missing"),
        (lambda c: c.update(slipstream_drafter=2), UnsupportedModel, "version 2"),
        (lambda c: c.pop("slipstream_drafter"), UnsupportedModel, "not a Slipstream drafter"),
        (lambda c: c.pop("target"), CorruptModel, "'target' is missing"),
        (lambda c: c.update(heads="3"), CorruptModel, "heads: must be int"),
        (lambda c: c.update(feature_layers=[1]), UnsupportedModel, "feature_layers"),
        (lambda c: c["layers"].update(num_layers=2), CorruptModel, "layers.1.*is missing"),
        (lambda c: c["layers"].update(intermediate_size=32), CorruptModel, "has shape"),
        (lambda c: c["layers"].update(num_layers=0), UnsupportedModel, "num_layers"),
        (lambda c: c.update(rank_accuracy=[[2.0]]), UnsupportedModel, "rank_accuracy"),
        (lambda c: c.update(formats={"nothing": "q8_0"}), CorruptModel, "no tensor"),
        (lambda c: c.update(formats={"fc.weight": "q8_0"}), CorruptModel, "uint8"),
        (lambda c: c.update(formats={"fc.weight": "q3"}), UnsupportedModel, "q3.*q8_0"),
    ],
)
def test_a_configuration_that_does_not_fit_is_refused(
    tmp_path: Path,
    tiny_checkpoint: Checkpoint,
    change: Callable[[dict[str, Any]], object],
    error: type[Exception],
    reason: str,
) -> None:
    config = config_for(tiny_checkpoint, "eagle")
    tensors = random_tensors(config)
    values = json.loads(config.to_json())
    change(values)
    save_drafter(tmp_path, config, tensors)
    _rebind(tmp_path, json.dumps(values))
    with pytest.raises(error, match=reason):
        load_drafter(tmp_path)


def test_config_and_weights_of_different_saves_are_refused(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    write_drafter(tmp_path / "a", tiny_checkpoint, "eagle")
    write_drafter(tmp_path / "b", tiny_checkpoint, "eagle", license="MIT")
    os.replace(tmp_path / "b" / CONFIG, tmp_path / "a" / CONFIG)
    with pytest.raises(CorruptModel, match="not saved together"):
        load_drafter(tmp_path / "a")


@pytest.mark.parametrize("file", [CONFIG, WEIGHTS])
@pytest.mark.parametrize("damage", ["missing", "empty", "half", "short"])
def test_a_damaged_file_is_refused(
    tmp_path: Path, tiny_checkpoint: Checkpoint, file: str, damage: str
) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "medusa")
    content = (tmp_path / file).read_bytes()
    if damage == "missing":
        (tmp_path / file).unlink()
    else:
        length = {"empty": 0, "half": len(content) // 2, "short": len(content) - 3}[damage]
        (tmp_path / file).write_bytes(content[:length])
    with pytest.raises(ModelError, match=file):
        load_drafter(tmp_path)


@pytest.mark.parametrize(
    ("vocabulary", "reason"),
    [([1, 1], "ascending"), ([5, 3], "ascending"), ([-1, 3], "within"), ([3, 320], "within")],
)
def test_a_vocabulary_map_must_be_ascending_and_in_range(
    tmp_path: Path, tiny_checkpoint: Checkpoint, vocabulary: list[int], reason: str
) -> None:
    with pytest.raises(CorruptModel, match=reason):
        write_drafter(tmp_path / "d", tiny_checkpoint, "medusa", vocabulary=vocabulary)
    assert not (tmp_path / "d").exists()
    config = config_for(tiny_checkpoint, "medusa")
    write_drafter(tmp_path / "d", tiny_checkpoint, "medusa")
    arrays = {VOCABULARY_MAP: ("I32", np.array(vocabulary, "<i4"))}
    write_container(tmp_path / "d" / WEIGHTS, Container(arrays, {}))
    _rebind(tmp_path / "d", config.to_json())
    with pytest.raises(CorruptModel, match=reason):
        load_drafter(tmp_path / "d")


def test_missing_surplus_and_misshapen_tensors_are_refused_when_saving(
    tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    config = config_for(tiny_checkpoint, "medusa")
    tensors = random_tensors(config)
    name = "heads.1.linear.bias"
    for changed, reason in (
        ({n: t for n, t in tensors.items() if n != name}, "is missing"),
        (tensors | {"heads.9.linear.bias": tensors[name]}, "not part of"),
        (tensors | {name: np.zeros(3, np.float32)}, "has shape"),
    ):
        with pytest.raises(ModelError, match=reason):
            save_drafter(tmp_path / "d", config, changed)
    assert not (tmp_path / "d").exists()


def test_a_failed_save_leaves_the_earlier_checkpoint(
    tmp_path: Path, tiny_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_drafter(tmp_path, tiny_checkpoint, "medusa", seed=1)
    before = {file.name: file.read_bytes() for file in tmp_path.iterdir()}

    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("slipstream.models.safetensors_file.os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write_drafter(tmp_path, tiny_checkpoint, "medusa", seed=2)
    assert {file.name: file.read_bytes() for file in tmp_path.iterdir()} == before


def test_the_configuration_reads_back_what_it_writes(tiny_checkpoint: Checkpoint) -> None:
    config = config_for(tiny_checkpoint, "draft", training={"steps": [1, 2], "loss": "kl"})
    assert DrafterConfig.from_json(config.to_json(), source="here") == config


def _rebind(path: Path, text: str) -> None:
    """Write a config.json and mark the weights as saved with it."""
    arrays = {n: (d, a.copy()) for n, (d, a) in read_container(path / WEIGHTS).arrays.items()}
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    write_container(path / WEIGHTS, Container(arrays, {"config_sha256": digest}))
    (path / CONFIG).write_text(text, encoding="utf-8")
