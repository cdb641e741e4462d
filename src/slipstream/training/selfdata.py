"""Text from the target itself: it asks, and it answers (Magpie, Xu et al. 2406.08464).

A model given its chat template up to the user's turn writes a user's turn; asked that, it answers.
So any model with a chat template is its own data set, and a drafter trained on it fits exactly the
text that it will have to guess. Answers are drawn at several temperatures.

Shard i is a function of settings, seed and the shards before it (they decide what is a duplicate),
so a run that was killed at any point goes on to the same data. Knows what an engine does, not how.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from slipstream.config import SamplingParams
from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.errors import CorruptModel, InvalidInput, SlipstreamError
from slipstream.models.tokenizer import Tokenizer
from slipstream.training.deduplicate import ENTRIES, Seen, is_held_out, signature
from slipstream.training.manifest import DataSettings, create, shard_path
from slipstream.training.recording import Record, RecordingTarget, record_text
from slipstream.training.shards import Shard, read_shard, write_shard

if TYPE_CHECKING:
    from slipstream.engine.engine import Engine
    from slipstream.engine.generation import Generation

Messages = Sequence[dict[str, Any]]

_MARK: Final = "\u2983user turn\u2984"
_FEWEST_WORDS: Final = 2
_MOST_EMPTY: Final = 5
IMPORTED: Final = -1.0


def bytes_per_token(settings: DataSettings, hidden_size: int) -> int:
    """Disk use of one token in a shard."""
    return 8 + 4 * settings.top + (2 * hidden_size if settings.features else 0)


def check_disk(directory: Path, settings: DataSettings, hidden_size: int, tokens: int) -> int:
    """Bytes that so many tokens will take.

    Raises:
        SlipstreamError: the disk hasn't got them.
    """
    needed = bytes_per_token(settings, hidden_size) * tokens
    parent = next(p for p in (directory, *directory.absolute().parents) if p.exists())
    free = shutil.disk_usage(parent).free
    if needed > free:
        raise SlipstreamError(
            f"{tokens:,} tokens take {needed / 1e9:.2f} GB in {directory}, but only "
            f"{free / 1e9:.2f} GB are free; ask for fewer tokens or leave features out"
        )
    return needed


def make_data(
    engine: Engine,
    directory: Path,
    settings: DataSettings,
    tokens: int,
    *,
    texts: Sequence[Messages] = (),
    progress: Callable[[int, int], None] = lambda shards, tokens: None,
) -> int:
    """Write shards until the directory holds so many tokens, or the texts run out.

    Args:
        engine: over a :class:`RecordingTarget`; batch size and backend are its own.
        texts: conversations from a file for ``prompts`` (up to a user turn) and ``chats``
            (up to an assistant's turn).
        progress: called with (shards, tokens) after each shard, those found included.

    Returns:
        Tokens in the directory.

    Raises:
        InvalidInput: the directory was begun with other settings, or the model has no template.
        SlipstreamError: the disk is full; whole shards stay.
    """
    target = engine.model
    assert isinstance(target, RecordingTarget)
    create(directory, TargetIdentity.of(target.info, engine.tokenizer), settings)
    maker = _ShardMaker(engine, target, settings, texts)
    seen, count, index, empty = Seen(), 0, 0, 0
    while count < tokens:
        path = shard_path(directory, index)
        shard = _read_whole(path) if path.exists() else None
        if shard is None:
            if settings.source != "self" and index * settings.conversations >= len(texts):
                break
            shard = maker.make(index, seen)
            write_shard(path, shard)
        else:
            for entries in shard.signatures:
                seen.add(entries)
        empty = 0 if len(shard) else empty + 1
        if empty == _MOST_EMPTY and settings.source == "self":
            raise SlipstreamError(
                f"the model wrote no usable user turn in {empty} shards; give it prompts in a file"
            )
        count += len(shard.tokens)
        index += 1
        progress(index, count)
    return count


class _ShardMaker:
    def __init__(
        self,
        engine: Engine,
        target: RecordingTarget,
        settings: DataSettings,
        texts: Sequence[Messages],
    ) -> None:
        self._engine, self._target, self._settings = engine, target, settings
        self._texts = texts
        self._before_user = user_prefix(engine.tokenizer) if settings.source == "self" else ""

    def make(self, index: int, seen: Seen) -> Shard:
        """One shard; ``seen`` takes note of its user turns."""
        asked = self._conversations(index)
        kept = [(i, chat, signature(_asked(chat))) for i, chat in asked]
        kept = [(i, chat, entries) for i, chat, entries in kept if seen.add(entries)]
        chats = [chat for _, chat, _ in kept]
        if self._settings.source == "chats":
            records, temperatures = self._import(chats), [IMPORTED] * len(chats)
        else:
            records, temperatures = self._answer(index, [(i, chat) for i, chat, _ in kept])
        rows = [
            (*recorded, temperature, is_held_out(_asked(chat), self._settings.held_out), entries)
            for recorded, temperature, (_, chat, entries) in zip(
                records, temperatures, kept, strict=True
            )
            if recorded is not None
        ]
        return self._shard(rows)

    def _conversations(self, index: int) -> list[tuple[int, Messages]]:
        size = self._settings.conversations
        if self._settings.source != "self":
            first = index * size
            return list(enumerate(self._texts[first : first + size]))
        return [(i, [{"role": "user", "content": t}]) for i, t in self._user_turns(index)]

    def _user_turns(self, index: int) -> Iterator[tuple[int, str]]:
        """What the model asks; turns that didn't end by themselves are dropped."""
        settings, tokenizer = self._settings, self._engine.tokenizer
        openings, prompts, params = [], [], []
        for i in range(settings.conversations):
            draw = np.random.default_rng(_seed(settings.seed, index, i, "opening"))
            openings.append(settings.openings[draw.integers(len(settings.openings))])
            prompts.append(tokenizer.encode(self._before_user + openings[-1], special=False))
            params.append(
                SamplingParams(
                    temperature=1.0,
                    top_p=0.98,
                    max_tokens=settings.user_tokens,
                    seed=_seed(settings.seed, index, i, "user"),
                )
            )
        self._target.recording = False
        try:
            generations = self._generate(prompts, params)
        finally:
            self._target.recording = True
        for i, (opening, generation) in enumerate(zip(openings, generations, strict=True)):
            text = (opening + generation.text).strip()
            if generation.finish_reason == "stop" and len(text.split()) >= _FEWEST_WORDS:
                yield i, text

    def _answer(
        self, index: int, chats: Sequence[tuple[int, Messages]]
    ) -> tuple[list[tuple[Record, int] | None], list[float]]:
        """Generate the answers; None for a request that failed or wrote nothing."""
        settings = self._settings
        prompts = [self._engine.tokenizer.encode_chat(chat) for _, chat in chats]
        temperatures = [settings.temperatures[i % len(settings.temperatures)] for i, _ in chats]
        params = [
            SamplingParams(
                temperature=temperature,
                max_tokens=settings.answer_tokens,
                seed=_seed(settings.seed, index, i, "answer"),
            )
            for (i, _), temperature in zip(chats, temperatures, strict=True)
        ]
        fits = [len(p) + 1 < self._target.info.max_context for p in prompts]
        some = [i for i, fit in enumerate(fits) if fit]
        generations = self._generate([prompts[i] for i in some], [params[i] for i in some])
        found: list[tuple[Record, int] | None] = [None] * len(chats)
        for i, generation, record in zip(some, generations, self._target.take(), strict=True):
            answer = [*prompts[i], *generation.token_ids]
            if generation.error is None and len(record.tokens) == len(answer) - 1:
                found[i] = _with_last(record, answer[-1]), len(prompts[i])
        return found, temperatures

    def _generate(
        self, prompts: Sequence[list[int]], params: Sequence[SamplingParams]
    ) -> list[Generation]:
        return self._engine.generate(prompts, params) if prompts else []

    def _import(self, chats: Sequence[Messages]) -> list[tuple[Record, int] | None]:
        tokenizer, found = self._engine.tokenizer, list[tuple[Record, int] | None]()
        for chat in chats:
            prompt = tokenizer.encode_chat(chat[:-1])
            whole = tokenizer.encode_chat(chat, add_generation_prompt=False)
            whole = whole[: min(len(prompt) + self._settings.answer_tokens, len(whole))]
            if whole[: len(prompt)] != prompt or len(whole) <= len(prompt):
                found.append(None)  # a template that rewrites earlier turns
                continue
            if len(whole) > self._target.info.max_context:
                found.append(None)
                continue
            record_text(self._target, whole, len(prompt))
            (record,) = self._target.take()
            found.append((_with_last(record, whole[-1]), len(prompt)))
        return found

    def _shard(self, rows: Sequence[tuple[Record, int, float, bool, Any]]) -> Shard:
        records = [row[0] for row in rows]
        hidden = self._target.info.hidden_size
        features = np.zeros((0, hidden), np.uint16)
        if self._settings.features:
            features = np.concatenate([features, *(record.features for record in records)])
        top = min(self._settings.top, self._target.info.vocab_size)
        lengths = [len(record.tokens) for record in records]
        return Shard(
            tokens=_joined([r.tokens for r in records], np.zeros(0, np.int32)),
            offsets=np.cumsum([0, *lengths], dtype=np.int32),
            answer_starts=np.array([row[1] for row in rows], np.int32),
            temperatures=np.array([row[2] for row in rows], np.float32),
            held_out=np.array([row[3] for row in rows], np.uint8),
            signatures=np.array([row[4] for row in rows], np.int32).reshape(-1, ENTRIES),
            features=features,
            top_ids=_joined([r.top_ids for r in records], np.zeros((0, top), np.int32)),
            normalisers=_joined([r.normalisers for r in records], np.zeros(0, np.float32)),
        )


def user_prefix(tokenizer: Tokenizer) -> str:
    """What the chat template writes before a user's words.

    Raises:
        InvalidInput: the model has no template, or it doesn't show the words as they are.
    """
    text = tokenizer.render([{"role": "user", "content": _MARK}], add_generation_prompt=False)
    before, mark, _ = text.partition(_MARK)
    if not mark:
        raise InvalidInput("the model's chat template hides the user's words; give prompts instead")
    return before


def read_texts(path: Path, source: str) -> tuple[list[Messages], str]:
    """Conversations from a file, and the file's digest.

    Each line is a user's turn as plain text, or JSON: a string, ``{"prompt": …}`` or
    ``{"messages": […]}``. For ``prompts`` a conversation is cut after its last user turn, for
    ``chats`` after its last answer.

    Raises:
        InvalidInput: unreadable, a line of another form, or nothing of use in it.
    """
    try:
        content = path.read_bytes()
        lines = content.decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} can't be read as text: {error}") from None
    last = "user" if source == "prompts" else "assistant"
    texts: list[Messages] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        messages = _messages(line, f"{path}, line {number}")
        while messages and messages[-1].get("role") != last:
            messages = messages[:-1]
        if messages:
            texts.append(messages)
    if not texts:
        raise InvalidInput(f"{path} holds no conversation that ends with a turn of the {last}")
    return texts, hashlib.sha256(content).hexdigest()[:16]


def _messages(line: str, where: str) -> list[dict[str, Any]]:
    if not line.lstrip().startswith(("{", '"')):
        return [{"role": "user", "content": line.strip()}]
    try:
        value = json.loads(line)
    except ValueError as error:
        raise InvalidInput(f"{where}: not JSON: {error}") from None
    if isinstance(value, dict):
        value = value.get("messages", value.get("prompt"))
    if isinstance(value, str) and value.strip():
        return [{"role": "user", "content": value}]
    sound = isinstance(value, list) and all(
        isinstance(m, dict) and isinstance(m.get("content"), str) and m.get("role") for m in value
    )
    if not sound:
        raise InvalidInput(f'{where}: must be a string, {{"prompt": …}} or {{"messages": […]}}')
    return list(value)


def _asked(chat: Messages) -> str:
    """The words of a conversation's user turns."""
    return "\n".join(str(m["content"]) for m in chat if m["role"] == "user")


def _seed(seed: int, shard: int, conversation: int, purpose: str) -> int:
    words = f"{seed}/{shard}/{conversation}/{purpose}".encode()
    return int.from_bytes(hashlib.sha256(words).digest()[:7], "big")


def _read_whole(path: Path) -> Shard | None:
    """A shard, or None if it is damaged and has to be made again."""
    try:
        return read_shard(path)
    except CorruptModel:
        return None


def _with_last(record: Record, token: int) -> Record:
    """The record with the newest token, which was never fed, and a row of zeros for it."""
    return Record(
        np.append(record.tokens, np.int32(token)),
        np.pad(record.features, ((0, 1), (0, 0))),
        np.pad(record.top_ids, ((0, 1), (0, 0))),
        np.pad(record.normalisers, (0, 1)),
    )


def _joined(parts: Sequence[Any], nothing: Any) -> Any:
    return np.concatenate([nothing, *parts])
