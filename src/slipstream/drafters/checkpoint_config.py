"""What a drafter checkpoint says of itself: its ``config.json``, read into frozen dataclasses.

A learned drafter is a stack over the *target's* embedding and LM head, so its configuration names
that target by fingerprint and holds the shape of its own layers only. Unknown fields are refused:
a setting that would go unused is a drafter that is not what it seems. Knows no tensors.
H hidden, V target vocabulary.
"""

from __future__ import annotations

import dataclasses
import json
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias, TypeVar

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.base import ModelInfo
from slipstream.models.checkpoint import LlamaConfig, RopeScaling
from slipstream.models.tokenizer import Tokenizer

VERSION: Final = 1
"""Value of ``slipstream_drafter``, the field that marks a config.json as a drafter's."""

Architecture: TypeAlias = Literal["draft", "medusa", "eagle"]
ARCHITECTURES: Final[tuple[Architecture, ...]] = ("draft", "medusa", "eagle")


@dataclass(frozen=True, kw_only=True)
class TargetIdentity:
    """The model that a drafter was trained for.

    Args:
        name: for people.
        fingerprint: hash of its configuration and weights.
        tokenizer_fingerprint: hash of its vocabulary.
        hidden_size, vocab_size: H and V.
    """

    name: str
    fingerprint: str
    tokenizer_fingerprint: str
    hidden_size: int
    vocab_size: int

    @classmethod
    def of(cls, info: ModelInfo, tokenizer: Tokenizer) -> TargetIdentity:
        """The identity of a loaded model."""
        return cls(
            name=info.name,
            fingerprint=info.fingerprint,
            tokenizer_fingerprint=tokenizer.fingerprint,
            hidden_size=info.hidden_size,
            vocab_size=info.vocab_size,
        )


@dataclass(frozen=True, kw_only=True)
class LayerShape:
    """The drafter's own transformer blocks; fields as in :class:`LlamaConfig`.

    What is missing there is the target's: hidden size, vocabulary, embedding, LM head.
    """

    architecture: Literal["llama", "mistral", "qwen2", "qwen3"] = "llama"
    num_layers: int
    intermediate_size: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    max_context: int
    attention_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False

    @classmethod
    def of(cls, config: LlamaConfig, *, num_layers: int) -> LayerShape:
        """Blocks shaped like another model's."""
        own = {f.name: getattr(config, f.name) for f in dataclasses.fields(cls)}
        return cls(**{**own, "num_layers": num_layers})

    def model(self, *, hidden_size: int, vocab_size: int, tied: bool = True) -> LlamaConfig:
        """The configuration of these blocks with an embedding and a head around them."""
        own = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        return LlamaConfig(
            **own, hidden_size=hidden_size, vocab_size=vocab_size, tie_embeddings=tied
        )


@dataclass(frozen=True, kw_only=True)
class DrafterConfig:
    """Everything in ``config.json``.

    Args:
        architecture: ``draft`` a small decoder, ``medusa`` heads, ``eagle`` a feature drafter.
        target: whom it was trained for, and drafts for.
        targets: fingerprints of further models that it drafts for: the same model quantised
            otherwise, or from another file.
        layers: shape of its blocks; None for ``medusa``.
        heads: Medusa heads; head i predicts the token i + 2 places on. 0 otherwise.
        feature_layers: target blocks whose outputs it reads beside the last feature; none yet.
        formats: tensor name -> ``q8_0`` for tensors stored as bytes of quantised blocks.
        rank_accuracy: by depth, then by rank: how often the drafter's r-th best token was the
            target's, measured on held-out text. Static trees are chosen by it.
        training: how it was made; free-form.
        license: of the weights.
    """

    architecture: Architecture
    target: TargetIdentity
    targets: tuple[str, ...] = ()
    layers: LayerShape | None = None
    heads: int = 0
    feature_layers: tuple[int, ...] = ()
    formats: Mapping[str, Literal["q8_0"]] = field(default_factory=dict)
    rank_accuracy: tuple[tuple[float, ...], ...] = ()
    training: Mapping[str, Any] = field(default_factory=dict)
    license: str = ""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"unknown drafter architecture {self.architecture!r}; "
                f"valid: {', '.join(ARCHITECTURES)}"
            )
        has_heads = self.architecture == "medusa"
        if (self.layers is None) != has_heads or (self.heads > 0) != has_heads:
            raise UnsupportedModel(
                "a medusa drafter has heads and no layers, the others layers and no heads; "
                f"this {self.architecture} has {self.heads} heads and "
                f"{0 if self.layers is None else self.layers.num_layers} layers"
            )
        if self.layers is not None and self.layers.num_layers < 1:
            raise UnsupportedModel(f"layers: num_layers must be >= 1, not {self.layers.num_layers}")
        if self.feature_layers:
            raise UnsupportedModel(
                "feature_layers: drafters that read inner layers of the target are not run here"
            )
        for depth, row in enumerate(self.rank_accuracy):
            if any(not 0.0 <= rate <= 1.0 for rate in row):
                raise UnsupportedModel(f"rank_accuracy[{depth}] must hold numbers in [0, 1]")

    def drafts_for(self, target: TargetIdentity) -> bool:
        """Whether it says of itself that it was made for this very model."""
        return target.fingerprint in (self.target.fingerprint, *self.targets)

    def to_json(self) -> str:
        """The text of ``config.json``."""
        values = {"slipstream_drafter": VERSION, **dataclasses.asdict(self)}
        return json.dumps(values, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str, *, source: str) -> DrafterConfig:
        """Read ``config.json``; ``source`` names it in messages.

        Raises:
            CorruptModel: no JSON object, or a field of the wrong kind.
            UnsupportedModel: not a drafter, another version, an unknown field or architecture.
        """
        try:
            values = json.loads(text)
        except ValueError as error:
            raise CorruptModel(f"{source}: not JSON: {error}") from None
        if not isinstance(values, dict) or "slipstream_drafter" not in values:
            raise UnsupportedModel(f"{source}: not a Slipstream drafter's configuration")
        version = values.pop("slipstream_drafter")
        if version != VERSION:
            raise UnsupportedModel(
                f"{source}: version {version!r} of the drafter format; this is version {VERSION}"
            )
        return _read(cls, values, source)


Parsed = TypeVar("Parsed")


def _read(kind: type[Parsed], values: object, where: str) -> Parsed:
    """Build a dataclass from plain JSON values, field by field."""
    if not isinstance(values, dict):
        raise CorruptModel(f"{where}: must be an object, not {values!r}")
    fields = {f.name: f for f in dataclasses.fields(kind)}  # type: ignore[arg-type]
    for name in values:
        if name not in fields:
            raise UnsupportedModel(
                f"{where}: unknown field {name!r}; valid: {', '.join(sorted(fields))}"
            )
    hints = typing.get_type_hints(kind)
    for name, f in fields.items():
        required = f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
        if required and name not in values:
            raise CorruptModel(f"{where}: field {name!r} is missing")
    return kind(
        **{name: _value(hints[name], value, f"{where}: {name}") for name, value in values.items()}
    )


def _value(hint: Any, value: Any, where: str) -> Any:
    """One JSON value as the annotation wants it."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if dataclasses.is_dataclass(hint):
        return _read(typing.cast("type[Any]", hint), value, where)
    if type(None) in arguments:
        return None if value is None else _value(arguments[0], value, where)
    if origin is Literal:
        if value not in arguments:
            valid = ", ".join(map(str, arguments))
            raise UnsupportedModel(f"{where}: {value!r} is not supported; valid: {valid}")
        return value
    if origin is tuple:
        if not isinstance(value, list):
            raise CorruptModel(f"{where}: must be a list, not {value!r}")
        return tuple(_value(arguments[0], entry, where) for entry in value)
    if origin is not None:  # Mapping[str, something]
        if not isinstance(value, dict):
            raise CorruptModel(f"{where}: must be an object, not {value!r}")
        return {key: _value(arguments[1], entry, where) for key, entry in value.items()}
    if hint is Any:
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        raise CorruptModel(f"{where}: must be {hint.__name__}, not {value!r}")
    return value
