"""The prompt of a command: from its argument or from stdin, as text or as a conversation."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from slipstream.errors import InvalidInput

if TYPE_CHECKING:
    from slipstream.engine.engine import Engine
    from slipstream.engine.prompts import Prompt


def read_prompt(prompt: str | None) -> str:
    """The prompt's text, from the argument or from stdin without its last line break."""
    if (prompt is None or prompt == "-") and sys.stdin is None:
        raise InvalidInput("there is no prompt: stdin is closed")
    if prompt is None and sys.stdin.isatty():
        raise InvalidInput("there is no prompt: give one as an argument or on stdin")
    if prompt is None or prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the prompt on stdin is not UTF-8 (byte {error.start})") from None
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("the prompt is not valid Unicode text") from None
    if not prompt:
        raise InvalidInput("the prompt is empty")
    return prompt


def as_prompt(engine: Engine, text: str, *, system: str | None, chat: bool | None) -> Prompt:
    """The prompt as the engine takes it: messages where the model can chat, else plain text."""
    if chat is None:
        chat = engine.tokenizer.has_chat_template
    if not chat:
        if system is not None:
            raise InvalidInput("--system needs a chat template: this is a plain-text prompt")
        return text
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": text}]
