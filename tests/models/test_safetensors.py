"""Hugging Face directories: damaged weights, and configurations that aren't honoured."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from slipstream.errors import CorruptModel, ModelError, UnsupportedModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.hf_config import llama_config
from slipstream.models.loader import open_checkpoint


@pytest.fixture
def directory(tiny_model_dir: Path, tmp_path: Path) -> Path:
    return shutil.copytree(tiny_model_dir, tmp_path / "model")


def change(directory: Path, **changes: Any) -> Path:
    file = directory / "config.json"
    config = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
    return directory


def rewrite(directory: Path, changes: dict[str, np.ndarray | None]) -> Path:
    file = directory / "model.safetensors"
    tensors = load_file(file) | changes
    save_file({k: v for k, v in tensors.items() if v is not None}, file)
    return directory


def test_weights_cut_anywhere_are_refused(directory: Path) -> None:
    file = directory / "model.safetensors"
    good = file.read_bytes()
    for offset in [*range(0, 20), *range(20, len(good), len(good) // 100), len(good) - 1]:
        file.write_bytes(good[:offset])
        with pytest.raises(CorruptModel):
            open_checkpoint(directory)


def test_changed_header_bytes_give_a_model_or_a_model_error(directory: Path) -> None:
    file = directory / "model.safetensors"
    good = file.read_bytes()
    rng = np.random.default_rng(11)
    for _ in range(200):
        damaged = bytearray(good)
        for offset in rng.integers(0, 4000, 3):
            damaged[offset] = rng.integers(0, 256)
        file.write_bytes(damaged)
        try:
            open_checkpoint(directory)
        except ModelError:
            continue


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"[1]", "header"),
        (b"{" * 5000, "header"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}', "size of its shape"),
        (b'{"a": {"dtype": "F32", "shape": [-1], "data_offsets": [4, 0]}}', "damaged"),
        (b'{"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4, 8]}}', "damaged"),
        (b'{"a": {"dtype": "F32", "shape": [4], "data_offsets": [0, 16]}}', "truncated"),
        (b'{"a": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}', "F8_E4M3"),
        (b'{"a": {"dtype": [], "shape": [4], "data_offsets": [0, 4]}}', r"stored as \[\]"),
        (b'{"__metadata__": [1]}', "header"),
    ],
)
def test_nonsense_headers_are_refused(header: bytes, reason: str, directory: Path) -> None:
    content = len(header).to_bytes(8, "little") + header + bytes(8)
    (directory / "model.safetensors").write_bytes(content)
    with pytest.raises(ModelError, match=reason):
        open_checkpoint(directory)


@pytest.mark.parametrize(
    ("changes", "error", "reason"),
    [
        ({"model.norm.weight": None}, CorruptModel, "model.norm.weight.*missing"),
        ({"model.norm.weight": np.zeros((2, 24), np.float32)}, CorruptModel, "shape"),
        ({"model.extra": np.zeros(3, np.float32)}, UnsupportedModel, "model.extra"),
        ({"model.norm.weight": np.zeros(48, np.int32)}, UnsupportedModel, "I32"),
    ],
)
def test_wrong_tensors_are_named(
    changes: dict[str, Any], error: type[ModelError], reason: str, directory: Path
) -> None:
    with pytest.raises(error, match=reason):
        open_checkpoint(rewrite(directory, changes))


def test_needless_tensors_of_old_files_are_left_out(
    directory: Path, tiny_checkpoint: Checkpoint
) -> None:
    rewrite(
        directory,
        {
            "lm_head.weight": np.zeros((320, 48), np.float32),  # a copy, where it is tied
            "model.layers.0.self_attn.rotary_emb.inv_freq": np.zeros(4, np.float32),
        },
    )
    assert open_checkpoint(directory).names() == tiny_checkpoint.names()


def test_shards_are_put_together(directory: Path, tiny_checkpoint: Checkpoint) -> None:
    tensors = load_file(directory / "model.safetensors")
    (directory / "model.safetensors").unlink()
    files = ("a.safetensors", "b.safetensors")
    index = {name: files[number % 2] for number, name in enumerate(tensors)}
    for file in files:
        save_file({n: t for n, t in tensors.items() if index[n] == file}, directory / file)
    listing = directory / "model.safetensors.index.json"
    listing.write_text(json.dumps({"weight_map": index}))
    checkpoint = open_checkpoint(directory)
    np.testing.assert_array_equal(
        checkpoint.tensor("model.norm.weight"), tiny_checkpoint.tensor("model.norm.weight")
    )
    (directory / files[1]).unlink()
    with pytest.raises(CorruptModel, match=r"b\.safetensors"):
        open_checkpoint(directory)
    listing.write_text(json.dumps({"weight_map": dict.fromkeys(index, "../../x.safetensors")}))
    with pytest.raises(CorruptModel, match="elsewhere"):
        open_checkpoint(directory)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gemma3"}, "gemma3.*llama, mistral, qwen2, qwen3"),
        ({"model_type": ...}, "None"),
        ({"hidden_act": "gelu"}, "hidden_act"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"quantization_config": {"quant_method": "awq"}}, "awq"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "yarn"),
        ({"rope_scaling": {"type": "dynamic", "factor": 4.0}}, "dynamic"),
        ({"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor"),
        ({"model_type": "mistral", "sliding_window": 128}, "sliding-window"),
        (
            {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 128},
            "sliding-window",
        ),
    ],
)
def test_what_is_not_honoured_is_refused(
    changes: dict[str, Any], reason: str, directory: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        open_checkpoint(change(directory, **changes))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": ...}, "hidden_size"),
        ({"hidden_size": "48"}, "hidden_size = '48'"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"num_hidden_layers": 10**9}, "blocks, but"),
        ({"num_hidden_layers": 4}, "missing"),
        ({"num_key_value_heads": 4}, "don't go together"),
        ({"vocab_size": 321}, "shape"),
        ({"rope_theta": "x"}, "rope_theta"),
        ({"rope_theta": -1.0}, "rope_theta"),
        ({"rope_scaling": "linear"}, "rotary settings"),
        ({"rope_scaling": {"rope_type": "linear"}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor"),
    ],
)
def test_configurations_that_make_no_sense_are_refused(
    changes: dict[str, Any], reason: str, directory: Path
) -> None:
    with pytest.raises(CorruptModel, match=reason):
        open_checkpoint(change(directory, **changes))


def test_windows_as_wide_as_the_context_are_no_windows(tiny_checkpoint: Checkpoint) -> None:
    base = {
        "model_type": "mistral",
        "vocab_size": 8,
        "hidden_size": 8,
        "intermediate_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "max_position_embeddings": 64,
    }
    assert llama_config({**base, "sliding_window": 64}).max_context == 64
    full = {"sliding_window": 8, "layer_types": ["full_attention"]}
    assert llama_config({**base, **full}).architecture == "mistral"


@pytest.mark.parametrize("content", ["", "{", "[]", "null", "\x00"])
@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "tokenizer.json"])
def test_broken_json_is_named(name: str, content: str, directory: Path) -> None:
    (directory / name).write_text(content)
    with pytest.raises(CorruptModel, match=name.replace(".", r"\.")):
        open_checkpoint(directory).tokenizer  # noqa: B018


def test_missing_files_are_named(directory: Path) -> None:
    (directory / "tokenizer.json").unlink()
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.json"):
        open_checkpoint(directory).tokenizer  # noqa: B018
    (directory / "model.safetensors").unlink()
    with pytest.raises(UnsupportedModel, match=r"model\.safetensors"):
        open_checkpoint(directory)
    (directory / "config.json").unlink()
    with pytest.raises(CorruptModel, match=r"config\.json"):
        open_checkpoint(directory)


def test_the_licence_is_read_from_the_model_card(directory: Path) -> None:
    (directory / "README.md").write_text("---\nlicense: apache-2.0\nlanguage: en\n---\n# Model\n")
    assert getattr(open_checkpoint(directory), "licence") == "apache-2.0"  # noqa: B009
