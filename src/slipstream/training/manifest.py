"""A directory of training data: the settings that reproduce it, and its shards in order.

``manifest.json`` is written before the first shard and never changes: which target, which seed,
which settings. Shard i depends on those and on the shards before it, so whatever is missing after a
kill can be made again. Knows no model and no training.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.errors import CorruptModel, InvalidInput, UnsupportedModel, VocabularyMismatch

MANIFEST: Final = "manifest.json"
_VERSION: Final = 1


@dataclass(frozen=True, kw_only=True)
class DataSettings:
    """What decides the text of every shard.

    Args:
        source: ``self`` the model writes the user turns too, ``prompts`` they come from a file,
            ``chats`` whole conversations do.
        source_digest: hash of that file, "" for ``self``.
        seed: everything drawn follows from it.
        conversations: per shard.
        temperatures: of the answers, in turn.
        user_tokens, answer_tokens: most tokens of a sampled user turn, and of an answer.
        held_out: share of conversations that are never trained on.
        features: whether features are kept in the shards.
        top: how many of the target's best tokens are kept per position.
        openings: beginnings of user turns, drawn at random for ``self``.
    """

    source: str = "self"
    source_digest: str = ""
    seed: int = 0
    conversations: int = 128
    temperatures: tuple[float, ...] = (0.0, 0.7, 1.0)
    user_tokens: int = 160
    answer_tokens: int = 320
    held_out: float = 0.02
    features: bool = True
    top: int = 8
    openings: tuple[str, ...] = ("",)

    def __post_init__(self) -> None:
        for name in ("conversations", "user_tokens", "answer_tokens", "top"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0.0 <= self.held_out < 1.0:
            raise InvalidInput(f"held_out must be in [0, 1), not {self.held_out}")
        if not self.temperatures or not self.openings:
            raise InvalidInput("temperatures and openings must hold at least one entry")


@dataclass(frozen=True)
class DataDirectory:
    """An opened directory.

    Args:
        path: the directory.
        target: the model that wrote the text.
        settings: how.
        shards: the files there are, without a gap.
    """

    path: Path
    target: TargetIdentity
    settings: DataSettings
    shards: tuple[Path, ...]

    @property
    def fingerprint(self) -> str:
        """Hash of the manifest and of which shards there are."""
        digest = hashlib.sha256((self.path / MANIFEST).read_bytes())
        for shard in self.shards:
            digest.update(f"{shard.name} {shard.stat().st_size}\n".encode())
        return digest.hexdigest()[:16]


def combined(fingerprints: Sequence[str]) -> str:
    """Fingerprint of several directories read as one, in this order."""
    return hashlib.sha256(" ".join(fingerprints).encode()).hexdigest()[:16]


def shard_path(directory: Path, index: int) -> Path:
    """Where shard ``index`` lies."""
    return directory / f"shard-{index:05d}.safetensors"


def create(path: Path, target: TargetIdentity, settings: DataSettings) -> DataDirectory:
    """Start a directory, or open the one that was started with the same settings.

    Raises:
        InvalidInput: there is one with other settings, or of another target.
    """
    manifest = path / MANIFEST
    if not manifest.exists():
        path.mkdir(parents=True, exist_ok=True)
        values = {
            "slipstream_data": _VERSION,
            "target": dataclasses.asdict(target),
            "settings": dataclasses.asdict(settings),
        }
        partial = path / f".{MANIFEST}.{os.getpid()}"
        partial.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
        os.replace(partial, manifest)
    found = open_data(path, target)
    for field in dataclasses.fields(settings):
        old, new = getattr(found.settings, field.name), getattr(settings, field.name)
        if old != new:
            raise InvalidInput(
                f"{path} was begun with {field.name} = {old!r}, not {new!r}; "
                "go on with the same settings or choose another directory"
            )
    return found


def open_data(path: Path, target: TargetIdentity | None = None) -> DataDirectory:
    """Open a directory, and check whose text it is where a target is given.

    Raises:
        CorruptModel: no manifest, or a damaged one.
        UnsupportedModel, VocabularyMismatch: the text of another target.
    """
    try:
        values = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
        if values["slipstream_data"] != _VERSION:
            raise UnsupportedModel(
                f"{path}: version {values['slipstream_data']!r} of the data format; "
                f"this is version {_VERSION}"
            )
        written_by = TargetIdentity(**values["target"])
        settings = DataSettings(**_tuples(values["settings"]))
    except OSError:
        raise CorruptModel(
            f"{path} holds no {MANIFEST}; make data with `slipstream train data`"
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        if isinstance(error, UnsupportedModel):
            raise
        raise CorruptModel(f"{path / MANIFEST} is damaged: {error}") from None
    if target is not None:
        check_target(f"the data in {path}", written_by, target)
    shards: list[Path] = []
    while (shard := shard_path(path, len(shards))).exists():
        shards.append(shard)
    return DataDirectory(path, written_by, settings, tuple(shards))


def check_target(what: str, made_for: TargetIdentity, target: TargetIdentity) -> None:
    """Refuse what belongs to another target.

    Raises:
        UnsupportedModel, VocabularyMismatch: names the first field that differs.
    """
    if made_for.tokenizer_fingerprint != target.tokenizer_fingerprint:
        raise VocabularyMismatch(
            f"{what} was made for {made_for.name!r} with tokenizer "
            f"{made_for.tokenizer_fingerprint}; {target.name!r} has {target.tokenizer_fingerprint}"
        )
    for field in ("hidden_size", "vocab_size", "fingerprint"):
        old, new = getattr(made_for, field), getattr(target, field)
        if old != new:
            raise UnsupportedModel(
                f"{what} was made for {made_for.name!r} ({field} {old}); "
                f"the target is {target.name!r} ({field} {new})"
            )


def _tuples(values: Mapping[str, Any]) -> dict[str, Any]:
    return {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
