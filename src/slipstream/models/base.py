"""What a model must do to be a target, or a drafter's model: feed rows, keep a path, tell features.

A *row* is one token at one place: its sequence, its token, and its parent among the sequence's
pending rows. Every forward pass appends its rows to the *pending* rows of their sequences; a row
sees its sequence's committed prefix, its pending ancestors and itself, in this order, and nothing
else. ``commit`` keeps one path of pending rows and drops the others. So a chain, a tree, a chunk of
a prompt and a single token are the same call, and a drafter may grow its tree level by level.

Knows no drafter, rule or sampling. Promises: rows of different sequences never influence each
other; what follows a commit can't be told from a fresh prefill of the same tokens.
Shape letters: R rows, L rows that want logits, V vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from slipstream.types import Array

PREFIX = -1
"""Parent of a row that follows the committed prefix directly."""

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """The numbers that other packages need of a model.

    Args:
        name: for people.
        vocab_size: width of the logits V; may be padded beyond the tokenizer's vocabulary.
        hidden_size: width of a feature H.
        num_layers: transformer blocks.
        max_context: most tokens a sequence may hold.
        fingerprint: hash of configuration and weights.
    """

    name: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    max_context: int
    fingerprint: str


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a backend can do; what it can't do is refused, never imitated.

    Args:
        trees: rows with arbitrary ancestry (otherwise chains only).
        features: hidden states come along.
        bit_exact: a row's bits don't depend on the rows that share its pass.
    """

    trees: bool = True
    features: bool = True
    bit_exact: bool = False


@dataclass(frozen=True)
class Rows:
    """Rows of any sequences for one pass.

    Args:
        sequences: (R,) sequence handles from ``open``.
        tokens: (R,) token ids.
        parents: (R,) index of each row's parent among its sequence's pending rows, counted from 0
            since the last commit and including the rows of this call; PREFIX for none.
        wants_logits: (R,) bool; None asks for all.
        vectors: (R, H) float32 inputs in place of the token embeddings, for drafters.
    """

    sequences: IntArray
    tokens: IntArray
    parents: IntArray
    wants_logits: npt.NDArray[np.bool_] | None = None
    vectors: Array | None = None

    @classmethod
    def chain(cls, sequence: int, tokens: Sequence[int], *, logits: bool = True) -> Rows:
        """Consecutive tokens that follow the committed prefix (no pending rows before them)."""
        count = len(tokens)
        return cls(
            sequences=np.full(count, sequence, np.int64),
            tokens=np.asarray(tokens, np.int64).reshape(count),
            parents=np.arange(PREFIX, count - 1, dtype=np.int64),
            wants_logits=np.full(count, logits, np.bool_),
        )

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(frozen=True)
class ForwardOutput:
    """What a pass computed.

    Args:
        logits: (L, V) float32, for the rows that want logits, in row order.
        features: (R, H) float32 input of the LM head (after the final norm), if asked for.
        layer_features: layer index -> (R, H) float32 residual stream after that block.
    """

    logits: Array
    features: Array | None = None
    layer_features: Mapping[int, Array] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class FeatureRequest:
    """Which hidden states a pass should bring along.

    Args:
        last: the input of the LM head.
        layers: block indices, 0-based, whose output residual stream is wanted.
    """

    last: bool = False
    layers: tuple[int, ...] = ()


NO_FEATURES = FeatureRequest()


@runtime_checkable
class TargetModel(Protocol):
    """A causal language model with a cache for many sequences."""

    @property
    def info(self) -> ModelInfo: ...

    @property
    def capabilities(self) -> Capabilities: ...

    def open(self) -> int:
        """Start an empty sequence; returns its handle."""
        ...

    def close(self, sequence: int) -> None:
        """Forget a sequence and free its cache."""
        ...

    def length(self, sequence: int) -> int:
        """Committed tokens in a sequence's cache."""
        ...

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        """Feed and commit tokens, in chunks; no logits. Features are those of these tokens.

        Raises:
            InvalidInput: unknown sequence, token outside the vocabulary, or past the context.
        """
        ...

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        """One pass over rows of any sequences; they become pending.

        Raises:
            InvalidInput: unknown sequence, token outside the vocabulary, a parent that is not an
                earlier pending row, or a position past the context.
        """
        ...

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        """Keep these pending rows, each the parent of the next, and drop all others.

        An empty path drops every pending row.

        Raises:
            InvalidInput: ``path`` is no path from the prefix downwards.
        """
        ...

    def truncate(self, sequence: int, length: int) -> None:
        """Drop pending rows and all committed tokens from ``length`` on."""
        ...
