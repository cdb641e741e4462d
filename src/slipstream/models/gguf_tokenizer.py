"""The tokenizer that a GGUF file's metadata describes: byte-level BPE, which ggml calls ``gpt2``.

Knows the metadata keys of ggml, nothing of tensors. Other kinds of tokenizer (SentencePiece,
WordPiece, Unigram) are refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeVar

import tokenizers
from tokenizers import AddedToken, decoders, models, processors

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.pretokenizers import pre_tokenizer
from slipstream.models.tokenizer import Tokenizer

_CONTROL, _USER_DEFINED = 3, 4

T = TypeVar("T")


def gguf_tokenizer(metadata: Mapping[str, Any]) -> Tokenizer:
    """Build the tokenizer.

    Raises:
        UnsupportedModel: a kind of tokenizer or pre-tokenizer that isn't known here.
        CorruptModel: entries that are missing or contradict each other.
    """
    kind = _entry(metadata, "model", str)
    if kind != "gpt2":
        raise UnsupportedModel(
            f"tokenizer {kind!r} of this GGUF file isn't supported; supported is 'gpt2', "
            "byte-level BPE (the model's Hugging Face directory works with any tokenizer)"
        )
    cut = pre_tokenizer(_entry(metadata, "pre", str, "default"))
    tokens = _strings(metadata, "tokens")
    vocab = {token: id for id, token in enumerate(tokens)}
    if len(vocab) < len(tokens):
        twice = next(token for id, token in enumerate(tokens) if vocab[token] != id)
        raise CorruptModel(f"token {twice!r} occurs twice in the vocabulary of this GGUF file")
    merges = []
    for merge in _strings(metadata, "merges"):
        left, space, right = merge.partition(" ")
        if not (left and space and right):
            raise CorruptModel(f"merge {merge!r} of this GGUF file is not a pair of tokens")
        merges.append((left, right))
    try:
        model = models.BPE(vocab=vocab, merges=merges, ignore_merges=cut.whole_words)
    except Exception as error:  # the Rust library has no exception type of its own
        raise CorruptModel(f"the merges of this GGUF file don't fit its tokens: {error}") from None

    backend = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = cut.build()
    backend.decoder = decoders.ByteLevel()
    types = _entry(metadata, "token_type", list, [])
    if types and len(types) != len(tokens):
        raise CorruptModel(f"{len(types)} token types for {len(tokens)} tokens in this GGUF file")
    added = [
        AddedToken(token, normalized=False, special=type == _CONTROL)
        for token, type in zip(tokens, types, strict=False)
        if type in (_CONTROL, _USER_DEFINED) and token
    ]
    backend.add_tokens(added)

    ids = {name: _token_id(metadata, f"{name}_token_id", len(tokens)) for name in _SPECIAL}
    bos, eos = ids["bos"], ids["eos"]
    before = after = ""
    if bos is not None and _entry(metadata, "add_bos_token", bool, cut.bos):
        before = "<bos>:0 "
    if eos is not None and _entry(metadata, "add_eos_token", bool, False):
        after = " <eos>:0"
    if before or after:
        special = [(f"<{n}>", i) for n, i in (("bos", bos), ("eos", eos)) if i is not None]
        backend.post_processor = processors.TemplateProcessing(
            single=f"{before}$A:0{after}", special_tokens=special
        )
    template = metadata.get("tokenizer.chat_template")
    if template is not None and not isinstance(template, str):
        raise CorruptModel("tokenizer.chat_template of this GGUF file is no text")
    return Tokenizer(
        backend,
        bos_token_id=bos,
        eos_token_ids=[id for id in (eos, ids["eot"]) if id is not None],
        chat_template=template,
        special_tokens={
            f"{_SPECIAL[name]}_token": tokens[id] for name, id in ids.items() if id is not None
        },
    )


_SPECIAL: Final = {
    "bos": "bos",
    "eos": "eos",
    "eot": "eot",
    "unknown": "unk",
    "padding": "pad",
}
"""ggml's name of a special token -> the name chat templates use."""


def _entry(metadata: Mapping[str, Any], key: str, kind: type[T], default: T | None = None) -> T:
    value = metadata.get(f"tokenizer.ggml.{key}", default)
    if value is None:
        raise CorruptModel(f"this GGUF file has no tokenizer.ggml.{key}")
    if not isinstance(value, kind):
        raise CorruptModel(f"tokenizer.ggml.{key} of this GGUF file is {type(value).__name__}")
    return value


def _strings(metadata: Mapping[str, Any], key: str) -> list[str]:
    values: list[str] = _entry(metadata, key, list)
    if not values or not isinstance(values[0], str):
        raise CorruptModel(f"tokenizer.ggml.{key} of this GGUF file is no list of texts")
    return values


def _token_id(metadata: Mapping[str, Any], key: str, count: int) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{key}")
    if value is None:
        return None
    if not isinstance(value, int) or not 0 <= value < count:
        raise CorruptModel(f"tokenizer.ggml.{key} of this GGUF file is {value}, out of {count}")
    return value
