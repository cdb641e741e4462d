"""Token ids, streams, special tokens and fingerprints."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import decoders, models, pre_tokenizers

from slipstream.errors import CorruptModel, InvalidInput, UnsupportedModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.gguf import GGUFCheckpoint
from slipstream.models.loader import open_checkpoint
from slipstream.models.pretokenizers import PRE_TOKENIZERS
from slipstream.models.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_checkpoint: Checkpoint) -> Tokenizer:
    return tiny_checkpoint.tokenizer


def pieces(tokenizer: Tokenizer, ids: list[int]) -> list[str]:
    stream = tokenizer.stream()
    return [*(stream.push(id) for id in ids), stream.flush()]


def test_text_survives_the_round_trip(tokenizer: Tokenizer) -> None:
    for text in ("The quick brown fox", "  über 漢字 😀\n\t", ""):
        assert tokenizer.decode(tokenizer.encode(text)) == text


@settings(derandomize=True, max_examples=150, deadline=None)
@given(data=st.data())
def test_joined_pieces_are_the_decoded_whole(tokenizer: Tokenizer, data: st.DataObject) -> None:
    """For any ids, special tokens and bytes that are no UTF-8 included."""
    ids = data.draw(st.lists(st.integers(0, tokenizer.vocab_size - 1), max_size=40))
    text = data.draw(st.text(max_size=10))
    ids += tokenizer.encode(text)
    assert "".join(pieces(tokenizer, ids)) == tokenizer.decode(ids)


def test_a_character_is_never_shown_in_part(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a😀b")
    shown = pieces(tokenizer, ids)
    assert len(ids) == 6
    assert shown == ["a", "", "", "", "😀", "b", ""]


def test_an_unfinished_character_comes_with_the_flush(tokenizer: Tokenizer) -> None:
    half = tokenizer.encode("é")[:1]
    assert pieces(tokenizer, [*tokenizer.encode("x"), *half]) == ["x", "", "\ufffd"]


def test_a_long_run_of_broken_bytes_is_shown_once_it_ends(tokenizer: Tokenizer) -> None:
    (start, _) = tokenizer.encode("é")
    shown = pieces(tokenizer, [start] * 5 + tokenizer.encode("x"))
    assert shown == [""] * 5 + ["\ufffd" * 5 + "x", ""]


def test_a_leading_space_is_kept_by_decoders_that_drop_it_from_texts() -> None:
    backend = tokenizers.Tokenizer(models.WordLevel({"▁a": 0, "▁b": 1, "c": 2}, unk_token="c"))
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    backend.decoder = decoders.Metaspace()
    tokenizer = Tokenizer(backend)
    ids = [0, 1, 2, 1, 0]
    assert tokenizer.decode(ids) == "a bc b a"
    assert pieces(tokenizer, ids) == ["a", " b", "c", " b", " a", ""]


def test_special_tokens_in_a_stream_are_silent_unless_asked_for(tokenizer: Tokenizer) -> None:
    ids = tokenizer.encode("a<|im_end|>b")
    assert "".join(pieces(tokenizer, ids)) == "ab"
    stream = tokenizer.stream(skip_special=False)
    assert "".join(stream.push(id) for id in ids) == "a<|im_end|>b"


def test_end_tokens_come_from_the_files_and_from_the_template(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    directory = shutil.copytree(tiny_model_dir, tmp_path / "model")
    ends = lambda: open_checkpoint(directory).tokenizer.eos_token_ids  # noqa: E731
    assert ends() == {1, 3}
    (directory / "generation_config.json").unlink()
    assert ends() == {1, 3}, "the template writes <|im_end|>"
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings["chat_template"] = "{{ messages[0]['content'] }}"
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    assert ends() == {1}


def test_a_separate_template_file_wins(tiny_model_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(tiny_model_dir, tmp_path / "model")
    (directory / "chat_template.jinja").write_text("{{ bos_token }}{{ messages[0].content }}")
    tokenizer = open_checkpoint(directory).tokenizer
    assert tokenizer.render([{"role": "user", "content": "hi"}]) == "<|begin|>hi"


def test_named_templates_give_the_default_one(tiny_model_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(tiny_model_dir, tmp_path / "model")
    settings = json.loads((directory / "tokenizer_config.json").read_text())
    settings["eos_token"] = {"content": "<|endoftext|>", "special": True}
    settings["chat_template"] = [
        {"name": "tool_use", "template": "tools"},
        {"name": "default", "template": "plain {{ eos_token }}"},
    ]
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    tokenizer = open_checkpoint(directory).tokenizer
    assert tokenizer.render([{"role": "user", "content": "x"}]) == "plain <|endoftext|>"


def test_ids_and_tokens_find_each_other(tokenizer: Tokenizer) -> None:
    assert tokenizer.vocab_size == 320
    assert tokenizer.token(3) == "<|im_end|>"
    assert tokenizer.id("<|im_end|>") == 3
    assert tokenizer.id("no such token") is None
    for id in (-1, 320, 2**40):
        with pytest.raises(InvalidInput, match="no token"):
            tokenizer.token(id)


def test_equal_vocabularies_have_one_fingerprint(
    tokenizer: Tokenizer, tiny_gguf: Path, make_tiny_model: Callable[..., Path], tmp_path: Path
) -> None:
    from_gguf = GGUFCheckpoint(tiny_gguf).tokenizer
    assert from_gguf.fingerprint == tokenizer.fingerprint
    assert from_gguf.first_difference(tokenizer) is None
    smaller = open_checkpoint(make_tiny_model(tmp_path / "m", vocab_size=300)).tokenizer
    assert smaller.fingerprint != tokenizer.fingerprint
    assert smaller.first_difference(tokenizer) == (300, None, tokenizer.token(300))
    assert tokenizer.first_difference(smaller) == (300, tokenizer.token(300), None)


def test_a_gguf_tokenizer_is_the_one_it_was_made_of(tokenizer: Tokenizer, tiny_gguf: Path) -> None:
    from_gguf = GGUFCheckpoint(tiny_gguf).tokenizer
    for text in ("The quick brown fox", "x <|im_start|>user\n<|im_end|>", "\t 12  é😀"):
        ids = tokenizer.encode(text)
        assert from_gguf.encode(text) == ids
        assert from_gguf.decode(ids, skip_special=False) == text


def test_bos_and_eos_are_added_where_the_file_says(
    make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    def ids(**metadata: bool) -> list[int]:
        entries = {f"tokenizer.ggml.{key}": value for key, value in metadata.items()}
        path = make_gguf(tmp_path / "m.gguf", metadata=entries)
        return GGUFCheckpoint(path).tokenizer.encode("fox")

    plain = ids()
    assert ids(add_bos_token=True) == [0, *plain]
    assert ids(add_bos_token=True, add_eos_token=True) == [0, *plain, 1]
    path = make_gguf(tmp_path / "m.gguf", pre="llama-bpe")
    llama3 = GGUFCheckpoint(path).tokenizer
    assert llama3.encode("fox")[0] == 0, "Llama 3 begins with BOS unless the file says otherwise"
    assert llama3.encode("fox", special=False)[0] != 0


@pytest.mark.parametrize(
    ("name", "text", "cut"),
    [
        ("gpt-2", "a  123 it's", ["a", "Ġ", "Ġ123", "Ġit", "'s"]),
        ("smollm", "a  123 it's", ["a", "ĠĠ", "1", "2", "3", "Ġit", "'s"]),
        ("llama-bpe", "a  1234 it'S\n\n", ["a", "Ġ", "Ġ", "123", "4", "Ġit", "'S", "ĊĊ"]),
        ("qwen2", "a  123!\nb", ["a", "Ġ", "Ġ", "1", "2", "3", "!Ċ", "b"]),
        ("tekken", "camelCase 12/\n", ["camel", "Case", "Ġ", "1", "2", "/Ċ"]),
    ],
)
def test_pre_tokenizers_cut_as_their_models_do(name: str, text: str, cut: list[str]) -> None:
    built = PRE_TOKENIZERS[name].build()
    assert [piece for piece, _ in built.pre_tokenize_str(text)] == cut


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"tokenizer.ggml.model": "llama"}, "tokenizer 'llama'"),
        ({"tokenizer.ggml.pre": "martian"}, "pre-tokenizer 'martian'.*smollm"),
    ],
)
def test_other_tokenizers_are_refused_by_name(
    metadata: dict[str, str], reason: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", metadata=metadata))
    with pytest.raises(UnsupportedModel, match=reason):
        checkpoint.tokenizer  # noqa: B018


@pytest.mark.parametrize(
    ("metadata", "reason"),
    [
        ({"tokenizer.ggml.model": None}, "no tokenizer.ggml.model"),
        ({"tokenizer.ggml.tokens": None}, "no tokenizer.ggml.tokens"),
        ({"tokenizer.ggml.tokens": ["a", "b", "a"]}, "'a' occurs twice"),
        ({"tokenizer.ggml.merges": ["ab"]}, "'ab' .* is not a pair"),
        ({"tokenizer.ggml.merges": ["a nowhere"]}, "don't fit"),
        ({"tokenizer.ggml.token_type": [1, 1]}, "2 token types for 320"),
        ({"tokenizer.ggml.eos_token_id": 320}, "320, out of 320"),
        ({"tokenizer.chat_template": 5}, "no text"),
    ],
)
def test_contradictory_vocabularies_are_refused(
    metadata: dict[str, Any], reason: str, make_gguf: Callable[..., Path], tmp_path: Path
) -> None:
    checkpoint = GGUFCheckpoint(make_gguf(tmp_path / "m.gguf", metadata=metadata))
    with pytest.raises(CorruptModel, match=reason):
        checkpoint.tokenizer  # noqa: B018
