"""Text to token ids and back, for one model: a ``tokenizers`` tokenizer with what generation needs.

Adds the end tokens, the chat template, a fingerprint to compare vocabularies by, and a decoder for
streams that never shows half a character. Knows no model and no file format. Promises that the
pieces of a stream, joined, are ``decode`` of all its tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import tokenizers

from slipstream.errors import InvalidInput
from slipstream.models.chat import ChatTemplate

_TURN_ENDS: Final = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<|end|>", "<end_of_turn>")
"""Tokens that end a turn in common chat templates."""

_INCOMPLETE: Final = "\ufffd"


class Tokenizer:
    """The vocabulary of one model.

    Args:
        backend: the ``tokenizers`` tokenizer; its post-processor adds BOS where the model wants it.
        bos_token_id: first token of a text, None if the model has none.
        eos_token_ids: end tokens that the model's files state. The end of a turn, if the chat
            template writes one, is added here.
        chat_template: jinja2 source, None if the model has no chat format.
        special_tokens: names that templates use, such as ``bos_token``, to their spelling.
    """

    def __init__(
        self,
        backend: tokenizers.Tokenizer,
        *,
        bos_token_id: int | None = None,
        eos_token_ids: Iterable[int] = (),
        chat_template: str | None = None,
        special_tokens: Mapping[str, str] | None = None,
    ) -> None:
        self._backend = backend
        self.bos_token_id = bos_token_id
        ends = set(eos_token_ids)
        for text in _TURN_ENDS:
            if chat_template and text in chat_template and (end := self.id(text)) is not None:
                ends.add(end)
        self.eos_token_ids = frozenset(ends)
        self._texts: dict[int, str] = {}  # of tokens that a stream met, alone
        self._template = (
            None if chat_template is None else ChatTemplate(chat_template, special_tokens or {})
        )

    @property
    def backend(self) -> tokenizers.Tokenizer:
        """The underlying tokenizer, to be read only."""
        return self._backend

    @cached_property
    def vocab_size(self) -> int:
        """One more than the highest token id; a model's logits may be padded beyond it."""
        return max(self._backend.get_vocab(with_added_tokens=True).values(), default=-1) + 1

    def encode(self, text: str, *, special: bool = True) -> list[int]:
        """Token ids of a text; special tokens spelled out in it become their ids.

        Args:
            special: add what the model wants around a text, such as BOS.

        Raises:
            InvalidInput: half a surrogate pair, which no text in UTF-8 holds.
        """
        try:
            text.encode("utf-8")
        except UnicodeEncodeError as error:
            raise InvalidInput(
                f"the prompt is not valid Unicode text: character {error.start} is a lone surrogate"
            ) from None
        return list(self._backend.encode(text, add_special_tokens=special).ids)

    def decode(self, ids: Sequence[int], *, skip_special: bool = True) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD, unknown ids nothing."""
        return self._backend.decode(list(ids), skip_special_tokens=skip_special)

    def stream(self, *, skip_special: bool = True) -> TextStream:
        """A decoder for tokens that come one at a time."""
        return TextStream(self, skip_special)

    def token(self, id: int) -> str:
        """A token as the vocabulary spells it.

        Raises:
            InvalidInput: no such id.
        """
        token = self._backend.id_to_token(id) if 0 <= id < 2**32 else None
        if token is None:
            raise InvalidInput(f"there is no token {id}; the vocabulary has {self.vocab_size}")
        return token

    def id(self, token: str) -> int | None:
        """The id of a token as the vocabulary spells it, None if there is none."""
        return self._backend.token_to_id(token)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that :meth:`decode` skips unless told otherwise."""
        added = self._backend.get_added_tokens_decoder()
        return frozenset(id for id, token in added.items() if token.special)

    @cached_property
    def joins_bytes(self) -> bool:
        """Whether the bytes of a text are those of its tokens in a row (byte-level BPE)."""
        return isinstance(self._backend.decoder, tokenizers.decoders.ByteLevel)

    def text_alone(self, id: int) -> str:
        """``decode([id], skip_special=False)``, remembered."""
        text = self._texts.get(id)
        if text is None:
            text = self._texts[id] = self.decode([id], skip_special=False)
        return text

    @property
    def has_chat_template(self) -> bool:
        """Whether ``render`` can be called."""
        return self._template is not None

    def render(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
        **variables: Any,
    ) -> str:
        """The text of a conversation, as the model's chat template writes it.

        Raises:
            InvalidInput: no chat template, or messages that it doesn't take.
        """
        if self._template is None:
            raise InvalidInput("this model has no chat template; give it plain text")
        return self._template.render(
            messages, add_generation_prompt=add_generation_prompt, tools=tools, **variables
        )

    def encode_chat(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> list[int]:
        """Token ids of a conversation; the template itself writes BOS where it belongs.

        Takes the options of :meth:`render` and raises what it raises.
        """
        return self.encode(self.render(messages, **options), special=False)

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the mapping from ids to tokens: equal for models that speak the same tokens."""
        digest = hashlib.sha256()
        for id, token in sorted(self._by_id.items()):
            digest.update(f"{id} {token}\n".encode("utf-8", "surrogatepass"))
        return digest.hexdigest()[:16]

    def first_difference(self, other: Tokenizer) -> tuple[int, str | None, str | None] | None:
        """The lowest id that the two spell differently, with both spellings; None if equal."""
        mine, theirs = self._by_id, other._by_id
        for id in range(max(self.vocab_size, other.vocab_size)):
            if mine.get(id) != theirs.get(id):
                return id, mine.get(id), theirs.get(id)
        return None

    @cached_property
    def _by_id(self) -> dict[int, str]:
        return {id: t for t, id in self._backend.get_vocab(with_added_tokens=True).items()}


class TextStream:
    """Decodes tokens as they come and holds back what a later token may still change.

    Only the tokens since the last clean boundary are decoded again, behind the tokens before it:
    some decoders treat the first token of a text in a way of their own. Where they only join bytes,
    a token of whole characters at such a boundary is its own text, and nothing is decoded twice.
    """

    def __init__(self, tokenizer: Tokenizer, skip_special: bool = True) -> None:
        self._tokenizer = tokenizer
        self._skip_special = skip_special
        self._joins_bytes = tokenizer.joins_bytes
        self._context: list[int] = []  # shown completely
        self._open: list[int] = []
        self._shown = 0  # characters of context + open that were returned already

    def push(self, token_id: int) -> str:
        """The text that this token completes; may be empty."""
        if self._skip_special and token_id in self._tokenizer.special_ids:
            return ""  # and no longer window, should they come in a row
        if self._joins_bytes and not self._open:
            alone = self._tokenizer.text_alone(token_id)
            if alone and _INCOMPLETE not in alone:
                self._context, self._shown = [token_id], len(alone)
                return alone
        self._open.append(token_id)
        text = self._decode()
        # A character whose last bytes are still to come decodes to U+FFFD.
        stable = text.rstrip(_INCOMPLETE)
        piece = stable[self._shown :]
        if len(stable) < len(text):
            self._shown = max(self._shown, len(stable))
        elif piece:
            self._context, self._open = self._open, []
            self._shown = len(self._decode())
        return piece

    def flush(self) -> str:
        """What was held back, at the end of the stream."""
        piece = self._decode()[self._shown :]
        self._shown += len(piece)
        return piece

    def _decode(self) -> str:
        return self._tokenizer.decode(self._context + self._open, skip_special=self._skip_special)
