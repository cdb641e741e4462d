"""Frozen, keyword-only settings that refuse what they don't know.

Each class validates itself on construction, so an invalid setting can't travel further than the
line that wrote it. ``from_mapping`` takes plain dictionaries (files, requests) and lists the valid
fields when one is unknown. Knows no model: limits that depend on one are checked where it is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from numbers import Integral, Real
from typing import Any, Final, Literal, TypeAlias, TypeVar

from slipstream.errors import InvalidInput, UnknownName

MAX_DEPTH: Final = 64
"""Most tokens a chain may draft in one cycle."""

MAX_NODES: Final = 512
"""Most tokens a tree may draft in one cycle."""

Depth: TypeAlias = int | Literal["auto"]
"""Drafted depth, or the word that leaves it to the controller."""

Config = TypeVar("Config", bound="_Config")


class _Config:
    @classmethod
    def from_mapping(cls: type[Config], values: Mapping[str, Any]) -> Config:
        """Build from a dictionary; unknown keys raise :class:`UnknownName`."""
        valid = [f.name for f in fields(cls)]  # type: ignore[arg-type]
        for name in values:
            if name not in valid:
                raise UnknownName(f"{cls.__name__} field", name, valid)
        return cls(**values)

    def _unwrap_numbers(self) -> None:
        for f in fields(self):  # type: ignore[arg-type]
            object.__setattr__(self, f.name, _plain(getattr(self, f.name)))


def _plain(value: Any) -> Any:
    """numpy's numbers as Python's, so that all print, hash and travel as JSON alike."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    return float(value) if isinstance(value, Real) else value


def _number(name: str, value: object, valid: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise InvalidInput(f"{name} must be {valid}, not {value!r}")
    return float(value)


def _in_range(name: str, value: object, low: float, high: float, valid: str) -> None:
    if not low <= _number(name, value, valid) <= high:
        raise InvalidInput(f"{name} must be {valid}, not {value!r}")


def _whole(name: str, value: object, low: int, high: int | None = None) -> None:
    valid = f"a whole number >= {low}" if high is None else f"a whole number in [{low}, {high}]"
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidInput(f"{name} must be {valid}, not {value!r}")
    if value < low or (high is not None and value > high):
        raise InvalidInput(f"{name} must be {valid}, not {value!r}")


@dataclass(frozen=True, kw_only=True)
class SamplingParams(_Config):
    """How one request turns logits into tokens, and when it ends.

    Processors act in this order, Hugging Face's: ``logit_bias``, ``repetition_penalty``,
    ``presence_penalty`` and ``frequency_penalty``, ``allowed_token_ids``, ``banned_token_ids``,
    then ``temperature``, ``top_k``, ``top_p``, ``min_p``.

    Args:
        temperature: 0 is greedy (ties to the lowest id); otherwise logits are divided by it.
        top_k: keep the k most likely tokens; 0 keeps all.
        top_p: keep the smallest set whose probability reaches top_p, in (0, 1].
        min_p: drop tokens less likely than min_p times the most likely one, in [0, 1].
        repetition_penalty: in [0.001, 1000]; divides positive and multiplies negative logits of
            tokens that occur in prompt or output (Keskar et al. 1909.05858). 1 is off.
        presence_penalty: subtracted once from every token that occurs in the output.
        frequency_penalty: subtracted from a token once per occurrence in the output.
        logit_bias: token id -> added logit.
        allowed_token_ids: if given, only these can be emitted.
        banned_token_ids: these can't.
        max_tokens: most tokens to emit.
        stop: strings that end the text; they are not part of it.
        stop_token_ids: further end tokens, beside the model's own.
        ignore_eos: go on after the model's end tokens.
        seed: same seed, same tokens. None draws a fresh one, reported with the result.
        logprobs: None, or how many top alternatives to report beside each token's own
            log-probability (of the target's unprocessed distribution).

    Raises:
        InvalidInput: a value outside its range.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)
    allowed_token_ids: tuple[int, ...] | None = None
    banned_token_ids: tuple[int, ...] = ()
    max_tokens: int = 256
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    seed: int | None = None
    logprobs: int | None = None

    def __post_init__(self) -> None:
        self._unwrap_numbers()
        if isinstance(self.stop, str):
            object.__setattr__(self, "stop", (self.stop,))
        for name in ("stop", "stop_token_ids", "banned_token_ids", "allowed_token_ids"):
            value = getattr(self, name)
            if value is None and name == "allowed_token_ids":
                continue
            if not isinstance(value, Iterable):
                raise InvalidInput(f"{name} must be a sequence, not {value!r}")
            object.__setattr__(self, name, tuple(_plain(entry) for entry in value))
        if not isinstance(self.logit_bias, Mapping):
            raise InvalidInput(f"logit_bias must map token ids to numbers, not {self.logit_bias!r}")
        biases = {_plain(token): _plain(bias) for token, bias in self.logit_bias.items()}
        object.__setattr__(self, "logit_bias", biases)

        _in_range("temperature", self.temperature, 0.0, 1e6, "a finite number >= 0")
        _whole("top_k", self.top_k, 0)
        _in_range("top_p", self.top_p, math.ulp(0.0), 1.0, "a number in (0, 1]")
        _in_range("min_p", self.min_p, 0.0, 1.0, "a number in [0, 1]")
        _in_range(
            "repetition_penalty", self.repetition_penalty, 1e-3, 1e3, "a number in [0.001, 1000]"
        )
        for name in ("presence_penalty", "frequency_penalty"):
            _in_range(name, getattr(self, name), -100.0, 100.0, "a number in [-100, 100]")
        for token, bias in self.logit_bias.items():
            _whole("logit_bias token id", token, 0)
            _in_range(f"logit_bias of token {token}", bias, -1e6, 1e6, "a finite number")
        for name in ("stop_token_ids", "banned_token_ids", "allowed_token_ids"):
            for token in getattr(self, name) or ():
                _whole(f"{name} entry", token, 0)
        if self.allowed_token_ids is not None:
            if not self.allowed_token_ids:
                raise InvalidInput("allowed_token_ids must name at least one token")
            if set(self.allowed_token_ids) <= set(self.banned_token_ids):
                raise InvalidInput("banned_token_ids leaves nothing of allowed_token_ids")
        _whole("max_tokens", self.max_tokens, 1)
        for text in self.stop:
            if not isinstance(text, str) or not text:
                raise InvalidInput(f"stop must hold non-empty strings, not {text!r}")
        if self.seed is not None:
            _whole("seed", self.seed, 0, 2**64 - 1)
        if self.logprobs is not None:
            _whole("logprobs", self.logprobs, 0, 100)

    def __hash__(self) -> int:
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values["logit_bias"] = frozenset(self.logit_bias.items())
        return hash(tuple(values.values()))

    @cached_property
    def penalizes(self) -> bool:
        """Whether tokens seen before are treated differently."""
        return (
            self.repetition_penalty != 1.0
            or self.presence_penalty != 0.0
            or self.frequency_penalty != 0.0
        )

    @cached_property
    def moves_tokens(self) -> bool:
        """Whether anything before the temperature treats some tokens differently."""
        return (
            self.penalizes
            or bool(self.logit_bias)
            or bool(self.banned_token_ids)
            or self.allowed_token_ids is not None
        )

    @cached_property
    def greedy(self) -> bool:
        """Temperature 0: the one-hot limit, the same code with all mass on the best token."""
        return self.temperature == 0.0


@dataclass(frozen=True, kw_only=True)
class SpeculationConfig(_Config):
    """What drafts, how far, and which rule judges it.

    Args:
        drafter: a registered name, optionally with an argument (``draft:PATH``); ``none`` is
            plain decoding, ``auto`` what was fastest for the target of those that need nothing
            more.
        k: drafted depth, tokens per cycle; 0 is plain decoding through the same loop; ``auto``
            chooses it for every request and cycle, by expected tokens per second.
        nodes: most drafted tokens per cycle, in a tree if more than k; None leaves it to the
            drafter.
        tree_width: most children of a node of a tree; None leaves it to the drafter.
        verify: name of the verification rule.
        allow_other_target: use a trained drafter with a model that it wasn't trained for, where
            sizes and tokens agree. That may be slower; the output is exact with any drafter.

    Raises:
        InvalidInput: k neither ``auto`` nor in [0, 64], nodes outside [0, 512], or tree_width
            outside [1, 512]. Unknown names are refused by their registries.
    """

    drafter: str = "auto"
    k: Depth = "auto"
    nodes: int | None = None
    tree_width: int | None = None
    verify: str = "coupled"
    allow_other_target: bool = False

    def __post_init__(self) -> None:
        self._unwrap_numbers()
        if self.k != "auto":
            valid = f"auto or a whole number in [0, {MAX_DEPTH}]"
            whole = isinstance(self.k, int) and not isinstance(self.k, bool)
            if not whole or not 0 <= self.k <= MAX_DEPTH:
                raise InvalidInput(f"k must be {valid}, not {self.k!r}")
        if self.nodes is not None:
            _whole("nodes", self.nodes, 0, MAX_NODES)
        if self.tree_width is not None:
            _whole("tree_width", self.tree_width, 1, MAX_NODES)
        if not isinstance(self.allow_other_target, bool):
            raise InvalidInput(
                f"allow_other_target must be True or False, not {self.allow_other_target!r}"
            )


@dataclass(frozen=True, kw_only=True)
class EngineConfig(_Config):
    """Where and how the target runs.

    Args:
        backend: ``auto`` takes the compiled core where it can, else the numpy reference, else
            Hugging Face; or one of ``native``, ``reference``, ``hf``.
        weights: ``auto`` (as the file has them), ``bf16``, ``int8``, ``q4`` or ``f32``.
        activations: ``bf16`` or ``int8``; compiled core only.
        threads: worker threads of the compiled core; None is one per physical core.
        device: torch device of the Hugging Face backend, such as ``cpu`` or ``cuda:0``.
        max_batch: most sequences decoded together.

    Raises:
        UnknownName, InvalidInput: a value that isn't listed above.
    """

    backend: str = "auto"
    weights: str = "auto"
    activations: str = "bf16"
    threads: int | None = None
    device: str | None = None
    max_batch: int = 16

    def __post_init__(self) -> None:
        self._unwrap_numbers()
        for name, valid in (
            ("backend", ("auto", "native", "reference", "hf")),
            ("weights", ("auto", "bf16", "int8", "q4", "f32")),
            ("activations", ("bf16", "int8")),
        ):
            if getattr(self, name) not in valid:
                raise UnknownName(name, str(getattr(self, name)), valid)
        if self.threads is not None:
            _whole("threads", self.threads, 1, 1024)
        _whole("max_batch", self.max_batch, 1, 4096)
