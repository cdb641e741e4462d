"""What EAGLE's network and a distilled draft model have in common: [fusion,] blocks, head.

A decoder reads tokens, and with a fusion (``fc``) a feature beside each; it gives the output of its
last block and, through the target's LM head, logits as wide as the drafter's vocabulary. Rows,
pending rows and commit are those of :class:`~slipstream.models.base.TargetModel`.
Shape letters: R rows, L rows that want logits, H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from array_api_compat import array_namespace

from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.models.base import ForwardOutput, IntArray, Rows
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.layout import FINAL_NORM
from slipstream.types import Array

FUSION = "fc.weight"
FUSION_BIAS = "fc.bias"

Linear: TypeAlias = Callable[[Array], Array]
"""(R, inputs) to (R, outputs), float32."""


@runtime_checkable
class SharedWeights(Protocol):
    """What a target lends to its drafters. Both take and give arrays of the target's own kind,
    and take numpy arrays as well."""

    def embed(self, tokens: IntArray) -> Array:
        """(R,) token ids to their (R, H) float32 embeddings."""
        ...

    def head(self, ids: IntArray | None) -> Linear:
        """The LM head, (R, H) features to (R, v) logits: of these tokens, or of all."""
        ...


class Cache(Protocol):
    """Committed and pending rows of many sequences."""

    def open(self) -> int: ...

    def close(self, sequence: int) -> None: ...

    def length(self, sequence: int) -> int:
        """Committed rows of a sequence."""
        ...

    def commit(self, sequence: int, path: Sequence[int]) -> None: ...

    def truncate(self, sequence: int, length: int) -> None: ...


class Stack(Cache, Protocol):
    """Transformer blocks with a cache for many sequences, fed with vectors."""

    def forward(self, rows: Rows) -> Array:
        """(R, H) output of the last block, normed if the stack has a final norm.

        ``rows.vectors`` is the input; tokens are not looked at. Raises as a target's does.
        """
        ...


class Decoder(Cache, Protocol):
    """See the module's text."""

    def forward(self, rows: Rows) -> ForwardOutput:
        """Feed rows, which become pending; ``vectors`` are the features of a fusion.

        Returns:
            (L, v) logits for the rows that want them, and as features the (R, H) output of the
            last block, normed if the drafter has a final norm.

        Raises:
            InvalidInput: see :meth:`slipstream.models.base.TargetModel.forward`.
        """
        ...


class Parts(Protocol):
    """What a backend without a decoder of its own puts one together from."""

    def asarray(self, values: Array) -> Array: ...

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear: ...

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        """The blocks ``model.layers.*`` and, if asked for, ``model.norm``."""
        ...


class ComposedDecoder:
    """A decoder of separate parts, one call each."""

    def __init__(self, checkpoint: DrafterCheckpoint, shared: SharedWeights, parts: Parts) -> None:
        config = checkpoint.config
        assert config.layers is not None
        self._shared, self._parts = shared, parts
        self._fusion: Linear | None = None
        if FUSION in checkpoint:
            bias = checkpoint.stored(FUSION_BIAS) if FUSION_BIAS in checkpoint else None
            self._fusion = parts.linear(checkpoint.stored(FUSION), bias)
        self._stack = parts.stack(
            config.layers.model(hidden_size=config.target.hidden_size, vocab_size=0),
            checkpoint.stored,
            final_norm=FINAL_NORM in checkpoint,
        )
        self._head = shared.head(checkpoint.vocabulary)
        self.open = self._stack.open
        self.close = self._stack.close
        self.length = self._stack.length
        self.commit = self._stack.commit
        self.truncate = self._stack.truncate

    def forward(self, rows: Rows) -> ForwardOutput:
        inputs = self._parts.asarray(self._shared.embed(rows.tokens))
        if self._fusion is not None:
            xp = array_namespace(inputs)
            features = self._parts.asarray(rows.vectors)
            inputs = self._fusion(xp.concat([inputs, features], axis=-1))
        hidden = self._stack.forward(
            Rows(sequences=rows.sequences, tokens=rows.tokens, parents=rows.parents, vectors=inputs)
        )
        wanted = hidden if rows.wants_logits is None else hidden[rows.wants_logits]
        return ForwardOutput(logits=self._head(wanted), features=hidden)
