"""The forms in which a prompt may come, and the one form in which it is decoded: token ids.

A prompt is a string, a chat (a list of messages) or a list of token ids; a batch is a list of
prompts. Knows the tokenizer, no model.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any, TypeAlias, TypeGuard

from slipstream.errors import InvalidInput
from slipstream.models.tokenizer import Tokenizer

Message: TypeAlias = Mapping[str, Any]
"""A chat message: ``{"role": "user", "content": "…"}``."""

Prompt: TypeAlias = str | Sequence[Message] | Sequence[int]


def is_batch(prompt: Prompt | Sequence[Prompt]) -> TypeGuard[Sequence[Prompt]]:
    """Whether this is a list of prompts rather than one prompt."""
    return (
        isinstance(prompt, Sequence)
        and not isinstance(prompt, (str, bytes))
        and len(prompt) > 0
        and all(isinstance(item, Sequence) for item in prompt)  # strings among them
    )


def encode_prompt(tokenizer: Tokenizer, prompt: Prompt, *, chat: bool) -> list[int]:
    """Token ids of one prompt.

    Args:
        chat: format a plain string as a user's message with the model's chat template.

    Raises:
        InvalidInput: an empty prompt, mixed or malformed messages, negative or non-integer ids.
    """
    if isinstance(prompt, str):
        if not prompt:
            raise InvalidInput("the prompt is empty")
        if chat:
            return tokenizer.encode_chat([{"role": "user", "content": prompt}])
        tokens = tokenizer.encode(prompt)
    elif not isinstance(prompt, Sequence) or isinstance(prompt, bytes):
        raise InvalidInput(
            f"a prompt is a string, a list of messages or a list of token ids, not {prompt!r}"
        )
    elif prompt and all(isinstance(item, Mapping) for item in prompt):
        return tokenizer.encode_chat([item for item in prompt if isinstance(item, Mapping)])
    else:
        for token in prompt:
            if isinstance(token, bool) or not isinstance(token, Integral):
                raise InvalidInput(f"token ids must be whole numbers, not {token!r}")
        tokens = [int(token) for token in prompt if isinstance(token, Integral)]  # numpy's too
    if not tokens:
        raise InvalidInput("the prompt is empty")
    return tokens
