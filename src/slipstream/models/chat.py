"""Chat templates: a conversation to text, by the model's own jinja2 source in a sandbox.

Gives what ``apply_chat_template`` of transformers gives for text conversations. The source comes
with a model from anywhere, so it sees plain data only. Knows no tokenizer; jinja2 is imported with
the first conversation.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from slipstream.errors import InvalidInput

if TYPE_CHECKING:
    import jinja2


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
        from slipstream.models.chat_sandbox import compile_template

        return compile_template(self.source)


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
