"""Data that the target writes itself: whole shards, the same after a kill, no text twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.engine.engine import Engine
from slipstream.errors import (
    CorruptModel,
    InvalidInput,
    SlipstreamError,
    UnsupportedModel,
    VocabularyMismatch,
)
from slipstream.models.base import FeatureRequest
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.training.deduplicate import Seen, is_held_out, signature
from slipstream.training.manifest import DataSettings, create, open_data, shard_path
from slipstream.training.recording import RecordingTarget, record_text, summary
from slipstream.training.selfdata import (
    IMPORTED,
    bytes_per_token,
    check_disk,
    make_data,
    read_texts,
    user_prefix,
)
from slipstream.training.shards import Shard, from_bf16, read_shard, to_bf16, write_shard


def same(one: Shard, two: Shard) -> bool:
    return all(np.array_equal(a, two.arrays()[name]) for name, a in one.arrays().items())


def test_a_shard_holds_what_the_target_thought(
    tiny_data: Path, tiny_checkpoint: Checkpoint
) -> None:
    """Tokens, features, best tokens and normalisers against a fresh pass over the text."""
    target = ReferenceModel(tiny_checkpoint)
    shard = read_shard(shard_path(tiny_data, 0))
    assert len(shard) >= 4
    for number in range(4):
        begin, end = shard.offsets[number : number + 2].tolist()
        tokens, answer = shard.tokens[begin:end].tolist(), int(shard.answer_starts[number])
        handle = target.open()
        features = target.prefill(handle, tokens, FeatureRequest(last=True)).features
        logits = features @ target.head(None)(np.eye(features.shape[1], dtype=np.float32))
        found = from_bf16(shard.features[begin:end])
        np.testing.assert_allclose(found[:-1], features[:-1], atol=0.02, rtol=0.01)
        assert not found[-1].any()
        known = slice(answer - 1, end - begin - 1)
        ids, normalisers = summary(logits[known], 4)
        np.testing.assert_array_equal(shard.top_ids[begin:end][known], ids)
        np.testing.assert_allclose(shard.normalisers[begin:end][known], normalisers, rtol=1e-4)
        assert not shard.top_ids[begin : begin + answer - 1].any()
        if shard.temperatures[number] == 0:
            assert tokens[answer:] == ids[:, 0].tolist()


def test_user_turns_stand_in_the_chat_template(self_data: Path, recording_engine: Engine) -> None:
    tokenizer = recording_engine.tokenizer
    assert user_prefix(tokenizer) == "<|im_start|>user\n"
    shard = read_shard(shard_path(self_data, 0))
    prompt = tokenizer.decode(shard.tokens[: shard.answer_starts[0]].tolist(), skip_special=False)
    assert prompt.startswith("<|im_start|>user\n")
    assert prompt.endswith("<|im_end|>\n<|im_start|>assistant\n")


def test_a_killed_run_goes_on_to_the_same_data(
    self_data: Path, self_settings: DataSettings, recording_engine: Engine, tmp_path: Path
) -> None:
    """A shard that is missing, one that was cut off, and a leftover of an interrupted write."""
    first, second = (read_shard(shard_path(self_data, i)) for i in range(2))
    write_shard_after = create(tmp_path, open_data(self_data).target, self_settings)
    assert write_shard_after.shards == ()
    whole = shard_path(self_data, 0).read_bytes()
    shard_path(tmp_path, 0).write_bytes(whole[: len(whole) // 2])
    (tmp_path / ".shard-00001.safetensors.123").write_bytes(b"half")
    goal = len(first.tokens) + 1
    make_data(recording_engine, tmp_path, self_settings, goal)
    assert same(read_shard(shard_path(tmp_path, 0)), first)
    assert same(read_shard(shard_path(tmp_path, 1)), second)
    assert open_data(tmp_path).fingerprint == open_data(tmp_path).fingerprint


def test_enough_data_is_left_as_it_is(
    self_data: Path, self_settings: DataSettings, recording_engine: Engine
) -> None:
    before = [(p, p.stat().st_mtime_ns) for p in open_data(self_data).shards]
    seen: list[Any] = []
    count = make_data(
        recording_engine,
        self_data,
        self_settings,
        sum(len(read_shard(path).tokens) for path, _ in before) - 1,
        progress=lambda shards, tokens: seen.append((shards, tokens)),
    )
    assert [(p, p.stat().st_mtime_ns) for p in open_data(self_data).shards] == before
    assert seen[-1] == (len(before), count)


def test_no_user_turn_occurs_twice(self_data: Path) -> None:
    signatures = [
        tuple(row) for path in open_data(self_data).shards for row in read_shard(path).signatures
    ]
    assert len(set(signatures)) == len(signatures)


def test_prompts_from_a_file_are_asked_once_each(recording_engine: Engine, tmp_path: Path) -> None:
    file = tmp_path / "prompts.jsonl"
    lines = [
        "the quick brown fox",
        '{"prompt": "jumps over the lazy dog"}',
        "The quick, brown fox!",
        json.dumps(
            {
                "messages": [
                    {"role": "user", "content": "a draft"},
                    {"role": "assistant", "content": "cut off"},
                ]
            }
        ),
    ]
    file.write_text("\n".join(lines), encoding="utf-8")
    texts, digest = read_texts(file, "prompts")
    settings = DataSettings(
        source="prompts", source_digest=digest, answer_tokens=8, conversations=3, top=4
    )
    make_data(recording_engine, tmp_path / "data", settings, 10**6, texts=texts)
    shards = [read_shard(path) for path in open_data(tmp_path / "data").shards]
    assert [len(shard) for shard in shards] == [2, 1]


def test_imported_chats_keep_their_answers(
    recording_engine: Engine, tiny_reference: ReferenceModel, tmp_path: Path
) -> None:
    file = tmp_path / "chats.jsonl"
    chat = [
        {"role": "user", "content": "the dog"},
        {"role": "assistant", "content": "a quick brown fox"},
    ]
    file.write_text(json.dumps({"messages": chat}), encoding="utf-8")
    texts, digest = read_texts(file, "chats")
    settings = DataSettings(source="chats", source_digest=digest, top=4)
    make_data(recording_engine, tmp_path / "data", settings, 10**6, texts=texts)
    (path,) = open_data(tmp_path / "data").shards
    shard = read_shard(path)
    tokens, start = shard.tokens.tolist(), int(shard.answer_starts[0])
    tokenizer = recording_engine.tokenizer
    assert tokenizer.decode(tokens[start:]).strip() == "a quick brown fox"
    assert shard.temperatures[0] == IMPORTED
    handle = tiny_reference.open()
    features = tiny_reference.prefill(handle, tokens, FeatureRequest(last=True)).features
    np.testing.assert_allclose(from_bf16(shard.features)[:-1], features[:-1], atol=0.02, rtol=0.01)
    assert shard.normalisers[start - 1 : -1].all() and not shard.normalisers[: start - 1].any()


def test_recording_changes_nothing_and_keeps_committed_rows_only(
    tiny_checkpoint: Checkpoint,
) -> None:
    plain = ReferenceModel(tiny_checkpoint)
    recorder = RecordingTarget(ReferenceModel(tiny_checkpoint), top=4)
    outputs = []
    for drafter in ("none", "prompt-lookup"):
        engine = Engine(recorder, tokenizer=tiny_checkpoint.tokenizer, drafter=drafter)
        outputs.append(engine.generate("the dog the dog the dog"))
    expected = Engine(plain, tokenizer=tiny_checkpoint.tokenizer, drafter="none").generate(
        "the dog the dog the dog"
    )
    one, two = recorder.take()
    assert outputs[0].token_ids == outputs[1].token_ids == expected.token_ids
    np.testing.assert_array_equal(one.tokens, two.tokens)
    np.testing.assert_array_equal(one.top_ids, two.top_ids)
    np.testing.assert_allclose(one.normalisers, two.normalisers, rtol=1e-4)
    assert recorder.take() == []
    record_text(recorder, [*one.tokens.tolist(), 5], 8)
    (again,) = recorder.take()
    np.testing.assert_array_equal(again.tokens, one.tokens)
    np.testing.assert_allclose(
        from_bf16(again.features), from_bf16(one.features), atol=0.02, rtol=0.01
    )


def test_bf16_rounds_to_nearest_even() -> None:
    values = np.array([1.0, 1.00390625, 1.01171875, -3.14159, 0.0], np.float32)
    assert from_bf16(to_bf16(values)).tolist() == [1.0, 1.0, 1.015625, -3.140625, 0.0]


def test_near_duplicates_are_found_and_other_texts_are_not() -> None:
    text = "please write a short story about a dog that learns to drive an old red car to town"
    other = "explain how a compiler turns the text of a program into instructions of a machine"
    seen = Seen()
    assert seen.add(signature(text))
    assert not seen.add(signature(text.upper() + "!"))
    assert not seen.add(signature(text + " today"))
    assert seen.add(signature(other))


def test_the_held_out_split_is_a_property_of_the_text() -> None:
    texts = [f"question number {i}" for i in range(2000)]
    share = sum(is_held_out(text, 0.1) for text in texts) / len(texts)
    assert 0.07 < share < 0.13
    assert all(is_held_out(t, 0.1) == is_held_out(f"  {t.title()}?", 0.1) for t in texts[:200])


def test_a_damaged_shard_is_refused_with_the_reason(tiny_data: Path, tmp_path: Path) -> None:
    whole = shard_path(tiny_data, 0).read_bytes()
    path = tmp_path / "shard.safetensors"
    path.write_bytes(whole[:-100])
    with pytest.raises(CorruptModel, match="truncated"):
        read_shard(path)
    path.write_bytes(whole[:-10] + bytes(10))
    with pytest.raises(CorruptModel, match="checksum"):
        read_shard(path)


def test_a_full_disk_leaves_whole_shards(
    tiny_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard = read_shard(shard_path(tiny_data, 0))
    path = tmp_path / "shard.safetensors"
    write_shard(path, shard)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(SlipstreamError, match="No space left"):
        write_shard(path, shard)
    assert [p.name for p in tmp_path.iterdir()] == [path.name]
    assert same(read_shard(path), shard)


def test_disk_use_is_known_before_and_too_much_is_refused(
    self_data: Path, self_settings: DataSettings, tmp_path: Path
) -> None:
    shards = open_data(self_data).shards
    tokens = sum(len(read_shard(path).tokens) for path in shards)
    size = sum(path.stat().st_size for path in shards)
    predicted = bytes_per_token(self_settings, 48) * tokens
    assert predicted <= size <= predicted * 1.2
    assert check_disk(tmp_path / "new" / "place", self_settings, 48, 1000) < 10**6
    with pytest.raises(SlipstreamError, match="free"):
        check_disk(tmp_path, self_settings, 48, 10**15)


def test_other_settings_and_other_targets_are_refused(
    self_data: Path, self_settings: DataSettings
) -> None:
    target = open_data(self_data).target
    with pytest.raises(InvalidInput, match="seed = 0, not 1"):
        create(self_data, target, DataSettings(**{**vars(self_settings), "seed": 1}))
    with pytest.raises(UnsupportedModel, match="fingerprint"):
        open_data(self_data, TargetIdentity(**{**vars(target), "fingerprint": "other"}))
    with pytest.raises(VocabularyMismatch, match="tokenizer"):
        open_data(self_data, TargetIdentity(**{**vars(target), "tokenizer_fingerprint": "x"}))


def test_a_directory_without_data_says_how_to_make_some(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match="slipstream train data"):
        open_data(tmp_path)
    (tmp_path / "manifest.json").write_text("{", encoding="utf-8")
    with pytest.raises(CorruptModel, match="damaged"):
        open_data(tmp_path)


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"messages": 3}', "must be a string"),
        ('{"messages": [{"role": "user"}]}', "must be a string"),
        ('{"text": "x"}', "must be a string"),
        ("{", "not JSON"),
        ("", "holds no conversation"),
    ],
)
def test_unusable_files_of_texts_are_refused(tmp_path: Path, line: str, complaint: str) -> None:
    file = tmp_path / "texts.jsonl"
    file.write_text(line, encoding="utf-8")
    with pytest.raises(InvalidInput, match=complaint):
        read_texts(file, "prompts")
