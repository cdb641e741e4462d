"""Chat templates: a conversation to text, by the model's own jinja2 source in a sandbox.

Gives what ``apply_chat_template`` of transformers gives for text conversations: the same whitespace
rules, filters, functions and tags. The source comes with a model from anywhere, so it runs in
jinja2's immutable sandbox, on plain data only. Knows no tokenizer.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from slipstream.errors import InvalidInput


class ChatTemplate:
    """One template, compiled when it is first used.

    Args:
        source: jinja2 source.
        special_tokens: names such as ``bos_token`` to their spelling.
    """

    def __init__(self, source: str, special_tokens: Mapping[str, str]) -> None:
        self.source = source
        self._special_tokens = dict(special_tokens)

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation.

        Raises:
            InvalidInput: malformed messages, or the template doesn't take them or can't be run.
        """
        values = {
            **self._special_tokens,
            **variables,
            "messages": _plain(_checked(messages)),
            "tools": None if tools is None else _plain(list(tools)),
            "documents": variables.get("documents"),
            "add_generation_prompt": add_generation_prompt,
        }
        try:
            return self._compiled.render(values)
        except InvalidInput:
            raise
        except Exception as error:  # a template is foreign code and may fail in any way
            raise InvalidInput(f"the chat template doesn't take these messages: {error}") from error

    @cached_property
    def _compiled(self) -> jinja2.Template:
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_GenerationTag, jinja2.ext.loopcontrols],
        )
        environment.filters["tojson"] = _tojson
        environment.globals["raise_exception"] = _raise_exception
        environment.globals["strftime_now"] = _strftime_now
        try:
            return environment.from_string(self.source)
        except jinja2.TemplateError as error:
            raise InvalidInput(f"the model's chat template is broken: {error}") from error


class _GenerationTag(jinja2.ext.Extension):
    """``{% generation %}`` … ``{% endgeneration %}`` marks what to train on; here only a frame."""

    tags = {"generation"}  # noqa: RUF012 (jinja2's interface)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _checked(messages: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    if isinstance(messages, (str, bytes, Mapping)) or not isinstance(messages, Sequence):
        raise InvalidInput("messages must be a list of {'role': …, 'content': …}")
    if not messages:
        raise InvalidInput("a conversation needs at least one message")
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise InvalidInput(f"message {number} must be a dictionary with a 'role', a string")
    return [{k: v for k, v in message.items() if v is not None} for message in messages]


def _plain(value: Any) -> Any:
    """JSON types only: methods of richer objects are out of the sandbox's sight."""
    if value is None or type(value) in (str, int, float, bool):
        return value
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, str):
        return str.__str__(value)
    raise InvalidInput(f"messages may hold text, numbers, lists and dictionaries, not {value!r}")


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    # jinja2's own filter escapes HTML characters, which models were never trained on.
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise_exception(message: str) -> None:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)
