"""The tokenizer of a Hugging Face directory: tokenizer.json and the small files around it.

tokenizer.json says everything about text and ids; the files around it name the special tokens,
the end tokens (generation_config.json may list several) and the chat template. Directories without
a tokenizer.json are refused. A tokenizer that transformers has loaded already is taken as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.hf_config import read_json
from slipstream.models.tokenizer import Tokenizer


def directory_tokenizer(path: Path) -> Tokenizer:
    """Read the tokenizer of a directory.

    Raises:
        UnsupportedModel: no tokenizer.json.
        CorruptModel: a file that can't be read.
    """
    file = path / "tokenizer.json"
    if not file.exists():
        raise UnsupportedModel(f"{path} has no tokenizer.json; other tokenizers aren't read")
    try:
        backend = tokenizers.Tokenizer.from_file(str(file))
    except Exception as error:  # the Rust library has no exception type of its own
        raise CorruptModel(f"{file} is damaged: {error}") from None
    backend.no_truncation()
    backend.no_padding()
    settings, config, generation = (
        _read_if_present(path / name)
        for name in ("tokenizer_config.json", "config.json", "generation_config.json")
    )
    special = {
        key: text
        for key, value in settings.items()
        if key.endswith("_token") and (text := _spelling(value)) is not None
    }
    ends: list[int] = []
    if "eos_token" in special:
        ends += [id for id in [backend.token_to_id(special["eos_token"])] if id is not None]
    for source in (config, generation):
        stated = source.get("eos_token_id")
        stated = stated if isinstance(stated, list) else [stated]
        ends += [id for id in stated if type(id) is int and id >= 0]
    bos = backend.token_to_id(special["bos_token"]) if "bos_token" in special else None
    return Tokenizer(
        backend,
        bos_token_id=bos,
        eos_token_ids=ends,
        chat_template=_chat_template(path, settings),
        special_tokens=special,
    )


def tokenizer_from_transformers(tokenizer: Any) -> Tokenizer:
    """The tokenizer of a transformers model as ours.

    Raises:
        UnsupportedModel: it has no fast (Rust) implementation.
    """
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if not isinstance(backend, tokenizers.Tokenizer):
        raise UnsupportedModel(
            f"{type(tokenizer).__name__} has no fast tokenizer; load it with use_fast=True "
            "or convert it to tokenizer.json"
        )
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return Tokenizer(
        backend,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_ids=() if tokenizer.eos_token_id is None else (tokenizer.eos_token_id,),
        chat_template=template,
        special_tokens={
            name: token
            for name, token in tokenizer.special_tokens_map.items()
            if isinstance(token, str)
        },
    )


def _read_if_present(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _spelling(value: object) -> str | None:
    """A special token is written as its text or as a dictionary that holds it."""
    if isinstance(value, Mapping):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _chat_template(path: Path, settings: Mapping[str, Any]) -> str | None:
    separate = path / "chat_template.jinja"
    try:
        if separate.exists():
            return separate.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise CorruptModel(f"{separate} can't be read: {error}") from None
    template = settings.get("chat_template") or _read_if_present(path / "chat_template.json").get(
        "chat_template"
    )
    if isinstance(template, list):  # named templates; "default" is the one for chats
        named = {t.get("name"): t.get("template") for t in template if isinstance(t, Mapping)}
        template = named.get("default")
    if template is not None and not isinstance(template, str):
        raise CorruptModel(f"{path / 'tokenizer_config.json'}: chat_template is no text")
    return template
