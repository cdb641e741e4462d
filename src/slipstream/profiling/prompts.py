"""Prompts to profile with: chats, request logs or plain text, each with the domain it belongs to.

Reads JSON lines (or a JSON list, or one object) whose objects have ``prompt``, ``messages`` or
``turns`` (of which the first counts), also inside ``body`` or ``request`` as in logs of OpenAI
requests; and plain text, prompts separated by blank lines. The domain is ``domain``, ``category``,
``task`` or ``label``.
Knows no model. A few prompts of every kind come with the package, for those who have none.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, Final, TypeAlias

from slipstream.errors import InvalidInput

Messages: TypeAlias = list[dict[str, Any]]

DOMAINS: Final = ("domain", "category", "task", "label")
CONTENTS: Final = ("messages", "turns", "prompt")
WRAPPERS: Final = ("body", "request")

DEFAULT_PROMPTS: Final = "default_prompts.jsonl"


@dataclass(frozen=True)
class LabelledPrompt:
    """What a user asked, and which kind of request it is."""

    prompt: str | Messages
    domain: str


def read_prompts(path: Path) -> list[LabelledPrompt]:
    """Prompts of a file.

    Raises:
        InvalidInput: no prompt in it, or a line that can't be read; says which and what is valid.
        OSError: it can't be opened.
    """
    prompts = _parse(read_text(path), str(path))
    if not prompts:
        raise InvalidInput(f"{path} holds no prompt")
    return prompts


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        InvalidInput: it isn't UTF-8.
        OSError: it can't be opened.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path} is not UTF-8 text (byte {error.start})") from None


def default_prompts() -> list[LabelledPrompt]:
    """The prompts that come with the package: two of each kind."""
    text = files("slipstream.profiling").joinpath(DEFAULT_PROMPTS).read_text(encoding="utf-8")
    return _parse(text, DEFAULT_PROMPTS)


def spread_over_domains(prompts: Iterable[LabelledPrompt], limit: int) -> list[LabelledPrompt]:
    """At most ``limit`` prompts, taken from the domains in turn, in the order of the file."""
    by_domain: dict[str, list[LabelledPrompt]] = {}
    for prompt in prompts:
        by_domain.setdefault(prompt.domain, []).append(prompt)
    longest = max(map(len, by_domain.values()), default=0)
    turns = [queue[i] for i in range(longest) for queue in by_domain.values() if i < len(queue)]
    return turns[:limit]


def _parse(text: str, where: str) -> list[LabelledPrompt]:
    stripped = text.lstrip()
    if where.endswith((".jsonl", ".json")) or stripped.startswith(("{", "[")):
        return [_labelled(place, entry) for place, entry in json_entries(text, where)]
    paragraphs = "\n".join(line.rstrip() for line in text.splitlines()).split("\n\n")
    return [LabelledPrompt(p.strip(), "all") for p in paragraphs if p.strip()]


def json_entries(text: str, where: str) -> list[tuple[str, Any]]:
    """Values of JSON lines, of a JSON list or of one JSON object, each with its place for people.

    Raises:
        InvalidInput: it isn't JSON; says which line.
    """
    try:
        whole = json.loads(text)
    except ValueError as error:
        if text.lstrip().startswith("["):
            raise InvalidInput(f"{where} is not JSON: {error}") from None
    else:
        if isinstance(whole, list):
            return [(f"{where}, entry {i}", value) for i, value in enumerate(whole, start=1)]
        return [(where, whole)]
    entries = []
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            entries.append((f"{where}, line {number}", json.loads(line)))
        except ValueError as error:
            raise InvalidInput(f"{where}, line {number} is not JSON: {error}") from None
    return entries


def domain_of(*entries: Mapping[str, Any]) -> str:
    """The first label that the entries have, else ``all``."""
    return next((str(e[d]) for e in entries for d in DOMAINS if e.get(d)), "all")


def _labelled(place: str, entry: Any) -> LabelledPrompt:
    if isinstance(entry, str) and entry:
        return LabelledPrompt(entry, "all")
    if not isinstance(entry, Mapping):
        raise InvalidInput(f"{place} is neither an object nor a string")
    inner = next((entry[w] for w in WRAPPERS if isinstance(entry.get(w), Mapping)), entry)
    domain = domain_of(entry, inner)
    for name in CONTENTS:
        value = inner.get(name)
        if name == "prompt" and isinstance(value, str) and value:
            return LabelledPrompt(value, domain)
        if isinstance(value, list) and value:
            if name == "turns" and isinstance(value[0], str):
                return LabelledPrompt(value[0], domain)
            if name == "messages" and all(isinstance(m, Mapping) for m in value):
                return LabelledPrompt(_up_to_the_user(value), domain)
    if "trace" in entry:
        raise InvalidInput(f"{place} is a recorded trace: profile --trace FILE reads it")
    raise InvalidInput(f"{place} has none of: {', '.join(CONTENTS)} (a text or a non-empty list)")


def _up_to_the_user(messages: list[dict[str, Any]]) -> Messages:
    """A logged chat without the answer at its end: that is what the model shall write."""
    while len(messages) > 1 and messages[-1].get("role") == "assistant":
        messages = messages[:-1]
    return [dict(message) for message in messages]
