"""The numpy reference against transformers, and its cache against itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from slipstream.errors import InvalidInput, PromptTooLong
from slipstream.models.base import PREFIX, FeatureRequest, Rows, TargetModel
from slipstream.models.loader import open_checkpoint
from slipstream.models.reference import ReferenceModel

ALL = FeatureRequest(last=True, layers=(0, 2))
CLOSE = {"atol": 2e-4, "rtol": 2e-4}

TOKENS = np.random.default_rng(5).integers(4, 320, 40).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_word_embeddings": False, "attention_bias": True},
        {"rope_scaling": {"rope_type": "linear", "factor": 3.0}},
        {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 64,
            }
        },
        {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}, "rope_theta": None},
        {"model_type": "mistral", "sliding_window": None},
        {"model_type": "mistral", "sliding_window": 4096, "num_key_value_heads": 6},
        {"model_type": "qwen2"},
        {"model_type": "qwen2", "sliding_window": 16, "use_sliding_window": False},
        {"model_type": "qwen3", "head_dim": 16, "tie_word_embeddings": False},
        {"model_type": "qwen3", "attention_bias": True},
        {"hidden_size": 42, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6},
    ],
    ids=lambda changes: ",".join(f"{k}={v}" for k, v in changes.items()) or "llama",
)
def test_logits_and_features_are_those_of_transformers(
    changes: dict[str, Any], make_tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    changes = {"architectures": None, **changes}
    directory = make_tiny_model(tmp_path / "model", seed=3, **changes)
    theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
    with torch.no_grad():
        expected = theirs(torch.tensor([TOKENS]), output_hidden_states=True)
    model = ReferenceModel(open_checkpoint(directory))
    output = model.forward(Rows.chain(model.open(), TOKENS), ALL)
    np.testing.assert_allclose(output.logits, expected.logits[0], **CLOSE)
    states = [state[0].numpy() for state in expected.hidden_states]
    np.testing.assert_allclose(output.layer_features[0], states[1], **CLOSE)
    np.testing.assert_allclose(output.features, states[-1], **CLOSE)


@pytest.mark.parametrize("kind", ["Llama", "Mistral", "Qwen2", "Qwen3"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_transformers_saves_is_read(kind: str, dtype: str, tmp_path: Path) -> None:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=96,
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        max_position_embeddings=128,
        sliding_window=None,
        rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 20000.0},
    )
    torch.manual_seed(0)
    theirs = getattr(transformers, f"{kind}ForCausalLM")(config).to(getattr(torch, dtype)).eval()
    theirs.save_pretrained(tmp_path, max_shard_size="20KB")
    assert (tmp_path / "model.safetensors.index.json").exists(), "sharded"
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.config.rope_scaling is not None
    tokens = list(range(5, 60, 2))
    with torch.no_grad():
        expected = theirs.to(torch.float32)(torch.tensor([tokens])).logits[0]
    model = ReferenceModel(checkpoint)
    logits = model.forward(Rows.chain(model.open(), tokens)).logits
    np.testing.assert_allclose(logits, expected, **CLOSE)


def fresh(model: TargetModel, tokens: list[int]) -> Any:
    """Output of the last token after a prefill of the others."""
    sequence = model.open()
    model.prefill(sequence, tokens[:-1])
    output = model.forward(Rows.chain(sequence, tokens[-1:]), ALL)
    model.close(sequence)
    return output


def assert_same(one: Any, other: Any, row: int = 0) -> None:
    np.testing.assert_allclose(one.logits[row], other.logits[0], **CLOSE)
    np.testing.assert_allclose(one.features[row], other.features[0], **CLOSE)
    for layer in ALL.layers:
        np.testing.assert_allclose(
            one.layer_features[layer][row], other.layer_features[layer][0], **CLOSE
        )


def test_the_reference_is_a_target(tiny_reference: ReferenceModel) -> None:
    assert isinstance(tiny_reference, TargetModel)
    assert tiny_reference.capabilities.trees
    assert not tiny_reference.capabilities.bit_exact


def test_one_by_one_equals_all_at_once(tiny_reference: ReferenceModel) -> None:
    whole = tiny_reference.forward(Rows.chain(tiny_reference.open(), TOKENS), ALL)
    sequence = tiny_reference.open()
    for position, token in enumerate(TOKENS):
        single = tiny_reference.forward(Rows.chain(sequence, [token]), ALL)
        tiny_reference.commit(sequence, [0])
        assert_same(whole, single, position)
    assert tiny_reference.length(sequence) == len(TOKENS)


# A tree over pending slots: 0 ─ 1 ─ 3 ─ 5, 0 ─ 2 ─ 4, and a second root 6.
TREE_PARENTS = [PREFIX, 0, 0, 1, 2, 3, PREFIX]
TREE_TOKENS = [10, 20, 30, 40, 50, 60, 70]


def tree(sequence: int) -> Rows:
    return Rows(
        sequences=np.full(7, sequence),
        tokens=np.array(TREE_TOKENS),
        parents=np.array(TREE_PARENTS),
    )


def path_to(slot: int) -> list[int]:
    path = []
    while slot != PREFIX:
        path.append(slot)
        slot = TREE_PARENTS[slot]
    return path[::-1]


def test_each_branch_of_a_tree_equals_the_branch_alone(tiny_reference: ReferenceModel) -> None:
    sequence = tiny_reference.open()
    tiny_reference.prefill(sequence, TOKENS)
    output = tiny_reference.forward(tree(sequence), ALL)
    for slot in range(7):
        alone = fresh(tiny_reference, TOKENS + [TREE_TOKENS[i] for i in path_to(slot)])
        assert_same(output, alone, slot)


@pytest.mark.parametrize("slot", range(7))
def test_a_committed_path_equals_a_fresh_prefill(slot: int, tiny_reference: ReferenceModel) -> None:
    sequence = tiny_reference.open()
    tiny_reference.prefill(sequence, TOKENS)
    tiny_reference.forward(tree(sequence))
    path = path_to(slot)
    tiny_reference.commit(sequence, path)
    kept = TOKENS + [TREE_TOKENS[i] for i in path]
    assert tiny_reference.length(sequence) == len(kept)
    after = tiny_reference.forward(Rows.chain(sequence, [99]), ALL)
    assert_same(after, fresh(tiny_reference, [*kept, 99]))


def test_a_tree_may_grow_level_by_level(tiny_reference: ReferenceModel) -> None:
    sequence = tiny_reference.open()
    tiny_reference.prefill(sequence, TOKENS)
    rows = tree(sequence)
    at_once = tiny_reference.forward(rows, ALL)
    tiny_reference.commit(sequence, [])
    for part in (slice(0, 3), slice(3, 5), slice(5, 7)):
        some = Rows(rows.sequences[part], rows.tokens[part], rows.parents[part])
        output = tiny_reference.forward(some, ALL)
        np.testing.assert_allclose(output.logits, at_once.logits[part], **CLOSE)
        np.testing.assert_allclose(output.features, at_once.features[part], **CLOSE)


def test_sequences_in_one_pass_do_not_meet(tiny_reference: ReferenceModel) -> None:
    first, second = tiny_reference.open(), tiny_reference.open()
    tiny_reference.prefill(first, TOKENS[:20])
    tiny_reference.prefill(second, TOKENS[25:])
    mixed = Rows(  # rows of both, interleaved; two branches in the second
        sequences=np.array([first, second, first, second, second]),
        tokens=np.array([7, 8, 9, 10, 11]),
        parents=np.array([PREFIX, PREFIX, 0, 0, PREFIX]),
    )
    output = tiny_reference.forward(mixed, ALL)
    expected = [
        [*TOKENS[:20], 7],
        [*TOKENS[25:], 8],
        [*TOKENS[:20], 7, 9],
        [*TOKENS[25:], 8, 10],
        [*TOKENS[25:], 11],
    ]
    for row, tokens in enumerate(expected):
        assert_same(output, fresh(tiny_reference, tokens), row)


def test_prefill_in_chunks_equals_one_pass(
    tiny_reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = tiny_reference.forward(Rows.chain(tiny_reference.open(), TOKENS), ALL)
    monkeypatch.setattr("slipstream.models.reference._CHUNK", 7)
    sequence = tiny_reference.open()
    output = tiny_reference.prefill(sequence, TOKENS, ALL)
    assert output.logits.shape == (0, 320)
    np.testing.assert_allclose(output.features, whole.features, **CLOSE)
    np.testing.assert_allclose(output.layer_features[2], whole.layer_features[2], **CLOSE)
    after = tiny_reference.forward(Rows.chain(sequence, [9]), ALL)
    assert_same(after, fresh(tiny_reference, [*TOKENS, 9]))


def test_truncation_equals_a_shorter_prefill(tiny_reference: ReferenceModel) -> None:
    sequence = tiny_reference.open()
    tiny_reference.prefill(sequence, TOKENS)
    tiny_reference.forward(Rows.chain(sequence, [5, 6]))
    tiny_reference.truncate(sequence, 11)
    assert tiny_reference.length(sequence) == 11
    after = tiny_reference.forward(Rows.chain(sequence, [9]), ALL)
    assert_same(after, fresh(tiny_reference, [*TOKENS[:11], 9]))


def test_only_rows_that_want_logits_get_them(tiny_reference: ReferenceModel) -> None:
    rows = Rows.chain(tiny_reference.open(), TOKENS[:5])
    every = tiny_reference.forward(rows)
    wanted = np.array([False, True, False, False, True])
    some = tiny_reference.forward(
        Rows(np.full(5, tiny_reference.open()), rows.tokens, rows.parents, wanted)
    )
    np.testing.assert_allclose(some.logits, every.logits[wanted], **CLOSE)
    assert some.features is None and not some.layer_features


def test_vectors_take_the_place_of_embeddings(tiny_reference: ReferenceModel) -> None:
    rows = Rows.chain(tiny_reference.open(), TOKENS[:6])
    expected = tiny_reference.forward(rows)
    vectors = tiny_reference._embedding[TOKENS[:6]]
    given = Rows(np.full(6, tiny_reference.open()), np.full(6, -1), rows.parents, vectors=vectors)
    np.testing.assert_allclose(tiny_reference.forward(given).logits, expected.logits, **CLOSE)


def test_an_empty_prefill_gives_empty_features(tiny_reference: ReferenceModel) -> None:
    output = tiny_reference.prefill(tiny_reference.open(), [], ALL)
    assert output.features is not None
    assert output.features.shape == output.layer_features[2].shape == (0, 48)


def test_a_bad_prefill_changes_nothing(
    tiny_reference: ReferenceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("slipstream.models.reference._CHUNK", 4)
    sequence = tiny_reference.open()
    tiny_reference.prefill(sequence, TOKENS[:10])
    with pytest.raises(InvalidInput, match="token 320"):
        tiny_reference.prefill(sequence, [*TOKENS[:9], 320])
    with pytest.raises(PromptTooLong, match="512"):
        tiny_reference.prefill(sequence, [5] * 503)
    assert tiny_reference.length(sequence) == 10
    after = tiny_reference.forward(Rows.chain(sequence, [9]), ALL)
    assert_same(after, fresh(tiny_reference, [*TOKENS[:10], 9]))


def test_bad_calls_are_refused(tiny_reference: ReferenceModel) -> None:
    sequence = tiny_reference.open()
    with pytest.raises(InvalidInput, match="no block 3"):
        tiny_reference.forward(Rows.chain(sequence, [1]), FeatureRequest(layers=(3,)))
    tiny_reference.close(sequence)
    with pytest.raises(InvalidInput, match="no open sequence"):
        tiny_reference.prefill(sequence, [1])
