"""GGUF files of the tiny model: the same model comes out, and bad files are refused by reason."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from slipstream.errors import CorruptModel, ModelError, UnsupportedModel
from slipstream.models.checkpoint import Checkpoint, RopeScaling
from slipstream.models.gguf import GGUFCheckpoint
from slipstream.models.loader import open_checkpoint
from slipstream.models.rope import frequency_factors

MakeGGUF = Callable[..., Path]


def same_weights(one: Checkpoint, other: Checkpoint) -> None:
    assert list(one.names()) == list(other.names())
    for name in one.names():
        np.testing.assert_array_equal(one.tensor(name), other.tensor(name), err_msg=name)


def test_a_gguf_file_holds_the_model_it_was_made_of(
    tiny_gguf: Path, tiny_checkpoint: Checkpoint
) -> None:
    checkpoint = open_checkpoint(tiny_gguf)
    ours, theirs = checkpoint.config, tiny_checkpoint.config
    assert ours.rms_norm_eps == pytest.approx(theirs.rms_norm_eps)
    for field in ("vocab_size", "num_heads", "num_kv_heads", "head_dim", "tie_embeddings"):
        assert getattr(ours, field) == getattr(theirs, field)
    same_weights(checkpoint, tiny_checkpoint)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_every_architecture_comes_back_with_its_own_tensors(
    architecture: str,
    tied: bool,
    make_gguf: MakeGGUF,
    make_tiny_model: MakeGGUF,
    tmp_path: Path,
) -> None:
    directory = make_tiny_model(
        tmp_path / "model", model_type=architecture, tie_word_embeddings=tied, attention_bias=True
    )
    if architecture == "qwen3":  # ggml's qwen3 has no biases
        directory = make_tiny_model(
            tmp_path / "model", model_type=architecture, tie_word_embeddings=tied
        )
    original = open_checkpoint(directory)
    checkpoint = GGUFCheckpoint(make_gguf(tmp_path / "model.gguf", original))
    assert checkpoint.config.architecture == architecture
    assert checkpoint.config.qk_norm == (architecture == "qwen3")
    assert checkpoint.config.attention_bias == (architecture != "qwen3")
    assert checkpoint.config.tie_embeddings == tied
    same_weights(checkpoint, original)


@pytest.mark.parametrize("format", ["F16", "BF16", "Q8_0", "Q4_0", "Q4_1"])
def test_stored_rows_move_as_they_are(
    format: str, make_gguf: MakeGGUF, make_tiny_model: MakeGGUF, tmp_path: Path
) -> None:
    original = open_checkpoint(
        make_tiny_model(tmp_path / "model", hidden_size=64, num_attention_heads=8)
    )
    checkpoint = GGUFCheckpoint(make_gguf(tmp_path / "model.gguf", original, format=format))
    kind = gguf.GGMLQuantizationType[format]
    for name in original.names():
        stored, exact = checkpoint.stored(name), original.tensor(name)
        if exact.ndim == 1:
            assert stored.format == "f32"
            continue
        assert (stored.format, stored.shape) == (format.lower(), exact.shape)
        # Quantising row by row commutes with moving rows: bit for bit what quantising the
        # matrix in Hugging Face's order gives.
        expected = gguf.quants.quantize(exact, kind)
        np.testing.assert_array_equal(
            np.ascontiguousarray(stored.data).view(np.uint8), expected.view(np.uint8), err_msg=name
        )


def test_linear_scaling_is_read(make_gguf: MakeGGUF, tmp_path: Path) -> None:
    path = make_gguf(
        tmp_path / "m.gguf",
        metadata={"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0},
    )
    assert GGUFCheckpoint(path).config.rope_scaling == RopeScaling(kind="linear", factor=4.0)


def test_llama3_scaling_is_recovered_from_its_divisors(make_gguf: MakeGGUF, tmp_path: Path) -> None:
    scaling = RopeScaling(kind="llama3", factor=32.0)
    factors = frequency_factors(8, 500000.0, scaling)
    path = make_gguf(
        tmp_path / "m.gguf",
        metadata={"llama.rope.freq_base": 500000.0},
        tensors={"rope_freqs.weight": factors},
    )
    assert GGUFCheckpoint(path).config.rope_scaling == scaling


def test_other_divisors_are_refused(make_gguf: MakeGGUF, tmp_path: Path) -> None:
    path = make_gguf(tmp_path / "m.gguf", tensors={"rope_freqs.weight": np.array([1.0, 2, 3, 4])})
    with pytest.raises(UnsupportedModel, match="rope_freqs"):
        GGUFCheckpoint(path)


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"general.architecture": "mamba"}, "mamba.*llama, qwen2, qwen3"),
        ({"llama.rope.scaling.type": "yarn"}, "yarn"),
        ({"llama.expert_count": 8}, "expert_count = 8"),
        ({"llama.rope.dimension_count": 4}, "rope.dimension_count = 4"),
        ({"llama.attention.value_length": 16}, "value_length = 16"),
        ({"llama.attention.sliding_window": 64}, "sliding-window"),
    ],
)
def test_what_is_not_honoured_is_refused(
    metadata: dict[str, object], reason: str, make_gguf: MakeGGUF, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=reason):
        GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", metadata=metadata))


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"llama.block_count": None}, "block_count.*missing"),
        ({"llama.block_count": 4}, r"model\.layers\.3\..*missing"),
        ({"llama.block_count": 0}, "block_count"),
        ({"llama.block_count": 2**32 - 1}, "blocks, but"),
        ({"llama.attention.head_count_kv": 4}, "don't go together"),
        ({"llama.rope.freq_base": 0.0}, "rope_theta = 0"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "rms_norm_eps = nan"),
        ({"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": -2.0}, "factor = -2"),
        ({"llama.attention.head_count": "six"}, "head_count.*str, not int"),
        ({"llama.attention.head_count": 12}, "shape"),
        ({"llama.feed_forward_length": 95}, "shape"),
        ({"llama.attention.layer_norm_rms_epsilon": None}, "epsilon.*missing"),
    ],
)
def test_contradictions_are_found_on_opening(
    metadata: dict[str, object], reason: str, make_gguf: MakeGGUF, tmp_path: Path
) -> None:
    with pytest.raises(CorruptModel, match=reason):
        GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", metadata=metadata))


@pytest.mark.parametrize(
    ("tensors", "error", "reason"),
    [
        ({"token_embd.weight": None}, CorruptModel, "token_embd"),
        ({"output_norm.weight": None}, CorruptModel, r"model\.norm\.weight"),
        ({"blk.1.ffn_up.weight": None}, CorruptModel, r"layers\.1\.mlp\.up_proj"),
        ({"blk.1.ffn_up.weight": np.zeros((96, 47))}, CorruptModel, "shape"),
        ({"blk.0.attn_norm.weight": np.zeros((2, 24))}, CorruptModel, "shape"),
        ({"blk.0.attn_sinks.weight": np.zeros(6)}, UnsupportedModel, "attn_sinks"),
    ],
)
def test_missing_misshapen_and_surplus_tensors_are_named(
    tensors: dict[str, np.ndarray | None],
    error: type[ModelError],
    reason: str,
    make_gguf: MakeGGUF,
    tmp_path: Path,
) -> None:
    with pytest.raises(error, match=reason):
        GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", tensors=tensors))


def test_other_quantisations_are_refused_by_name(
    make_gguf: MakeGGUF, make_tiny_model: MakeGGUF, tmp_path: Path
) -> None:
    wide = open_checkpoint(make_tiny_model(tmp_path / "m", hidden_size=64, num_attention_heads=8))
    with pytest.raises(UnsupportedModel, match="Q5_1"):
        GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", wide, format="Q5_1"))


def test_the_fingerprint_follows_weights_and_configuration(
    tiny_gguf: Path, make_gguf: MakeGGUF, tmp_path: Path
) -> None:
    norm = np.full(48, 0.5)
    prints = {
        GGUFCheckpoint(path).fingerprint
        for path in (
            tiny_gguf,
            make_gguf(tmp_path / "a.gguf", tensors={"output_norm.weight": norm}),
            make_gguf(tmp_path / "b.gguf", metadata={"llama.context_length": 256}),
        )
    }
    assert len(prints) == 3
    again = GGUFCheckpoint(make_gguf(tmp_path / "c.gguf"))
    assert again.fingerprint == GGUFCheckpoint(tiny_gguf).fingerprint
