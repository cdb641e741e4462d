"""The compiled core on small random models: right, and the same bits in any company."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.errors import CorruptModel, InvalidInput, PromptTooLong, Unsupported
from slipstream.models.base import PREFIX, FeatureRequest, Rows, TargetModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.loader import open_checkpoint
from slipstream.models.native import MAX_ROWS, NativeModel
from slipstream.models.reference import ReferenceModel

MakeModel = Callable[..., Path]

pytestmark = pytest.mark.filterwarnings("error")

F32 = EngineConfig(weights="f32", threads=2)
SETTINGS = [
    F32,
    EngineConfig(weights="bf16", threads=2),
    EngineConfig(weights="int8", threads=2),
    EngineConfig(weights="q4", threads=2),
    EngineConfig(weights="int8", activations="int8", threads=2),
    EngineConfig(weights="q4", activations="int8", threads=2),
]


def settings_name(config: EngineConfig) -> str:
    return f"{config.weights}-{config.activations}"


@pytest.fixture(params=kernels.isas())
def isa(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv(kernels.ISA_VARIABLE, request.param)
    return str(request.param)


def tokens(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 320, count).tolist()


def chain_logits(model: TargetModel, text: list[int]) -> np.ndarray:
    return np.asarray(model.forward(Rows.chain(model.open(), text)).logits)


VARIANTS: dict[str, dict[str, object]] = {
    "llama": {},
    "untied": {"tie_word_embeddings": False},
    "biased": {"attention_bias": True},
    "llama3 rope": {
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
        }
    },
    "linear rope": {"rope_scaling": {"rope_type": "linear", "factor": 2.0}},
    "qwen2": {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2"},
    "qwen3": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "head_dim": 16},
    "wide heads": {"head_dim": 80, "num_attention_heads": 5, "num_key_value_heads": 1},
    "odd widths": {"hidden_size": 40, "intermediate_size": 72, "vocab_size": 317, "head_dim": 6},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_logits_and_features_are_the_references(
    name: str, make_tiny_model: MakeModel, tmp_path: Path, isa: str
) -> None:
    checkpoint = open_checkpoint(make_tiny_model(tmp_path / "model", **VARIANTS[name]))
    native, reference = NativeModel(checkpoint, F32), ReferenceModel(checkpoint)
    text = [token % checkpoint.config.vocab_size for token in tokens(70)]
    request = FeatureRequest(last=True, layers=(0, 2))
    ours = native.forward(Rows.chain(native.open(), text), request)
    theirs = reference.forward(Rows.chain(reference.open(), text), request)
    np.testing.assert_allclose(ours.logits, theirs.logits, atol=5e-4, rtol=1e-4)
    np.testing.assert_allclose(ours.features, theirs.features, atol=5e-4, rtol=1e-4)
    for layer in request.layers:
        np.testing.assert_allclose(
            ours.layer_features[layer], theirs.layer_features[layer], atol=5e-4, rtol=1e-4
        )


@pytest.mark.parametrize("config", SETTINGS, ids=settings_name)
def test_a_row_has_the_same_bits_in_any_company(
    config: EngineConfig, tiny_checkpoint: Checkpoint, isa: str
) -> None:
    model, text = NativeModel(tiny_checkpoint, config), tokens(90)
    together = chain_logits(model, text)
    assert np.isfinite(together).all()

    # One by one, committed each time.
    sequence = model.open()
    for row, token in enumerate(text):
        output = model.forward(Rows.chain(sequence, [token]))
        np.testing.assert_array_equal(output.logits[0], together[row])
        model.commit(sequence, [0])

    # In chunks, and after a prefill.
    for chunk in (2, 7, 33):
        sequence, rows = model.open(), []
        for start in range(0, len(text), chunk):
            part = text[start : start + chunk]
            rows.append(model.forward(Rows.chain(sequence, part)).logits)
            model.commit(sequence, range(len(part)))
        np.testing.assert_array_equal(np.concatenate(rows), together)
    sequence = model.open()
    model.prefill(sequence, text[:60])
    output = model.forward(Rows.chain(sequence, text[60:]))
    np.testing.assert_array_equal(output.logits, together[60:])


@pytest.mark.parametrize("config", SETTINGS, ids=settings_name)
def test_a_branch_of_a_tree_has_the_bits_of_a_chain(
    config: EngineConfig, tiny_checkpoint: Checkpoint, isa: str
) -> None:
    model = NativeModel(tiny_checkpoint, config)
    rng = np.random.default_rng(5)
    prompt = tokens(21)
    for size in (4, 17, 40):
        sequence = model.open()
        model.prefill(sequence, prompt)
        parents = [PREFIX] + [int(rng.integers(max(-1, i - 4), i)) for i in range(1, size)]
        branch = tokens(size, seed=size)
        # In two calls, so that the second one continues pending rows.
        first = size // 2
        outputs = []
        for part in (slice(0, first), slice(first, size)):
            ids = np.asarray(branch[part])
            outputs.append(
                model.forward(
                    Rows(
                        sequences=np.full(len(ids), sequence),
                        tokens=ids,
                        parents=np.asarray(parents[part]),
                    )
                ).logits
            )
        tree = np.concatenate(outputs)
        paths = []
        for node in range(size):
            path = []
            while node != PREFIX:
                path.append(node)
                node = parents[node]
            paths.append(path[::-1])
        for path in paths:
            alone = chain_logits(model, prompt + [branch[node] for node in path])
            np.testing.assert_array_equal(tree[path[-1]], alone[-1])

        # What follows a commit is a fresh prefill.
        longest = max(paths, key=len)
        model.commit(sequence, longest)
        assert model.length(sequence) == len(prompt) + len(longest)
        after = model.forward(Rows.chain(sequence, [9, 8])).logits
        fresh = chain_logits(model, prompt + [branch[node] for node in longest] + [9, 8])
        np.testing.assert_array_equal(after, fresh[-2:])


@pytest.mark.parametrize("config", SETTINGS, ids=settings_name)
def test_thread_count_changes_no_bit(config: EngineConfig, tiny_checkpoint: Checkpoint) -> None:
    text = tokens(40)
    results = []
    for threads in (1, 2, 3):
        same = EngineConfig(weights=config.weights, activations=config.activations, threads=threads)
        results.append(chain_logits(NativeModel(tiny_checkpoint, same), text))
    np.testing.assert_array_equal(results[0], results[1])
    np.testing.assert_array_equal(results[0], results[2])


def test_sequences_of_a_batch_dont_meet(tiny_checkpoint: Checkpoint) -> None:
    model = NativeModel(tiny_checkpoint, EngineConfig(weights="q4", threads=2))
    texts = [tokens(count, seed=count) for count in (1, 30, 9, 65)]
    alone = [chain_logits(model, text)[-1] for text in texts]
    sequences = []
    for text in texts:
        sequences.append(model.open())
        if text[:-1]:
            model.prefill(sequences[-1], text[:-1])
    output = model.forward(
        Rows(
            sequences=np.array(sequences),
            tokens=np.array([text[-1] for text in texts]),
            parents=np.full(len(texts), PREFIX),
        )
    )
    np.testing.assert_array_equal(output.logits, np.stack(alone))


def test_truncation_forgets_and_goes_on(tiny_checkpoint: Checkpoint) -> None:
    model, text = NativeModel(tiny_checkpoint, F32), tokens(150)
    sequence = model.open()
    model.prefill(sequence, text)
    for length in (150, 130, 64, 63, 1, 0):
        model.truncate(sequence, length)
        again = model.forward(Rows.chain(sequence, text[length : length + 20] or [1])).logits
        model.commit(sequence, [])
        fresh = chain_logits(model, text[: length + 20] if length < 150 else [*text, 1])
        np.testing.assert_array_equal(again, fresh[length:])


def test_only_rows_that_want_logits_get_them(tiny_checkpoint: Checkpoint) -> None:
    model, text = NativeModel(tiny_checkpoint, F32), tokens(12)
    everything = chain_logits(model, text)
    rows = Rows.chain(model.open(), text)
    wanted = np.zeros(12, np.bool_)
    wanted[[3, 4, 11]] = True
    some = Rows(
        sequences=rows.sequences, tokens=rows.tokens, parents=rows.parents, wants_logits=wanted
    )
    np.testing.assert_array_equal(model.forward(some).logits, everything[[3, 4, 11]])
    none = model.forward(Rows.chain(model.open(), text, logits=False))
    assert none.logits.shape == (0, 320)


def test_vectors_stand_in_for_embeddings(tiny_checkpoint: Checkpoint) -> None:
    model, text = NativeModel(tiny_checkpoint, F32), np.asarray(tokens(9))
    vectors = model.embed(text)
    np.testing.assert_allclose(vectors, ReferenceModel(tiny_checkpoint).embed(text), rtol=1e-6)
    rows = Rows.chain(model.open(), text.tolist())
    given = Rows(
        sequences=rows.sequences,
        tokens=np.zeros(9, np.int64),
        parents=rows.parents,
        vectors=vectors,
    )
    np.testing.assert_array_equal(model.forward(given).logits, chain_logits(model, text.tolist()))


def test_a_trimmed_head_has_the_bits_of_the_whole(tiny_checkpoint: Checkpoint) -> None:
    for config in SETTINGS:
        model, text = NativeModel(tiny_checkpoint, config), tokens(6)
        output = model.forward(Rows.chain(model.open(), text), FeatureRequest(last=True))
        np.testing.assert_array_equal(model.head(None)(output.features), output.logits)
        ids = np.array([5, 319, 0, 77, 18])
        np.testing.assert_array_equal(model.head(ids)(output.features), output.logits[:, ids])


def test_a_model_of_fewer_blocks_ends_after_them(tiny_checkpoint: Checkpoint) -> None:
    text = tokens(10)
    whole = NativeModel(tiny_checkpoint, F32)
    part = NativeModel(tiny_checkpoint, F32, num_layers=2)
    request = FeatureRequest(layers=(1,))
    theirs = whole.forward(Rows.chain(whole.open(), text), request).layer_features[1]
    ours = part.forward(Rows.chain(part.open(), text), request).layer_features[1]
    np.testing.assert_array_equal(ours, theirs)
    assert part.info.num_layers == 2
    with pytest.raises(InvalidInput, match="num_layers"):
        NativeModel(tiny_checkpoint, F32, num_layers=4)


def test_bad_calls_are_refused_and_change_nothing(tiny_checkpoint: Checkpoint) -> None:
    model, text = NativeModel(tiny_checkpoint, F32), tokens(5)
    sequence = model.open()
    model.prefill(sequence, text)
    expected = model.forward(Rows.chain(sequence, [7])).logits
    model.commit(sequence, [])

    good = Rows.chain(sequence, [7, 8])
    bad_rows = [
        Rows.chain(sequence, [320]),
        Rows.chain(sequence, [-1]),
        Rows.chain(sequence + 1, [1]),
        Rows.chain(sequence, []),
        Rows(sequences=good.sequences, tokens=good.tokens, parents=np.array([0, 1])),
        Rows(sequences=good.sequences, tokens=good.tokens, parents=np.array([-2, -1])),
        Rows(sequences=good.sequences, tokens=good.tokens, parents=np.array([-1])),
        Rows(
            sequences=good.sequences,
            tokens=good.tokens,
            parents=good.parents,
            vectors=np.zeros((2, 47), np.float32),
        ),
    ]
    for rows in bad_rows:
        with pytest.raises(InvalidInput):
            model.forward(rows)
    with pytest.raises(InvalidInput, match="block"):
        model.forward(good, FeatureRequest(layers=(3,)))
    with pytest.raises(InvalidInput):
        model.commit(sequence, [0])
    with pytest.raises(InvalidInput):
        model.truncate(sequence, 6)
    with pytest.raises(PromptTooLong):
        model.prefill(sequence, [1] * 508)
    assert model.length(sequence) == 5
    np.testing.assert_array_equal(model.forward(Rows.chain(sequence, [7])).logits, expected)


@pytest.mark.parametrize("config", SETTINGS, ids=settings_name)
def test_widths_that_fill_no_group_leave_nothing_to_the_next_pass(
    make_tiny_model: MakeModel, tmp_path: Path, isa: str, config: EngineConfig
) -> None:
    """48 numbers are one group of 32 and half of another; attention is 144 wide."""
    checkpoint = open_checkpoint(make_tiny_model(tmp_path / "model", head_dim=24))
    model, text = NativeModel(checkpoint, config), tokens(12)
    together, one_by_one = chain_logits(model, text), model.open()
    for token, expected in zip(text, together, strict=True):
        alone = model.forward(Rows.chain(one_by_one, [token])).logits[0]
        np.testing.assert_array_equal(alone, expected)
        model.commit(one_by_one, [0])


def test_more_rows_than_a_pass_takes_are_several_passes(tiny_checkpoint: Checkpoint) -> None:
    model = NativeModel(tiny_checkpoint, EngineConfig(weights="int8", threads=1))
    texts = [tokens(300, seed) for seed in range(4)]
    chains = [Rows.chain(model.open(), text) for text in texts]
    asked = FeatureRequest(last=True, layers=(1,))
    alone = [model.forward(chain, asked) for chain in chains]
    for chain in chains:
        model.commit(int(chain.sequences[0]), [])
    wants = np.arange(1200) % 7 == 0
    assert len(wants) > MAX_ROWS
    together = model.forward(
        Rows(
            sequences=np.concatenate([chain.sequences for chain in chains]),
            tokens=np.concatenate([chain.tokens for chain in chains]),
            parents=np.concatenate([chain.parents for chain in chains]),
            wants_logits=wants,
        ),
        asked,
    )
    logits = np.concatenate([output.logits for output in alone])
    np.testing.assert_array_equal(together.logits, logits[wants])
    features = np.concatenate([output.features for output in alone])
    np.testing.assert_array_equal(together.features, features)
    middle = np.concatenate([output.layer_features[1] for output in alone])
    np.testing.assert_array_equal(together.layer_features[1], middle)
    last = int(chains[-1].sequences[0])
    model.commit(last, range(300))
    assert model.length(last) == 300


def test_the_context_can_be_filled_to_the_last_position(tiny_checkpoint: Checkpoint) -> None:
    model = NativeModel(tiny_checkpoint, EngineConfig(threads=2))
    sequence = model.open()
    model.prefill(sequence, tokens(511))
    model.forward(Rows.chain(sequence, [1]))
    model.commit(sequence, [0])
    with pytest.raises(PromptTooLong):
        model.forward(Rows.chain(sequence, [1]))


@pytest.mark.parametrize("weights", ["auto", "bf16", "int8", "q4", "f32"])
def test_a_weight_that_is_not_finite_is_refused_by_name(
    weights: str, make_tiny_model: MakeModel, tmp_path: Path
) -> None:
    directory = make_tiny_model(tmp_path / "model")
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(directory / "model.safetensors")
    tensors[name][5, 7] = np.nan
    save_file(tensors, directory / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(CorruptModel, match=name):
        NativeModel(open_checkpoint(directory), EngineConfig(weights=weights, threads=1))


def test_int8_activations_need_integer_weights(tiny_checkpoint: Checkpoint) -> None:
    for weights in ("auto", "bf16", "f32"):
        with pytest.raises(Unsupported, match="int8"):
            NativeModel(tiny_checkpoint, EngineConfig(weights=weights, activations="int8"))


def test_a_closed_sequence_is_gone(tiny_checkpoint: Checkpoint) -> None:
    model = NativeModel(tiny_checkpoint, F32)
    sequence = model.open()
    model.close(sequence)
    with pytest.raises(InvalidInput):
        model.forward(Rows.chain(sequence, [1]))
    with pytest.raises(InvalidInput):
        model.close(sequence)
