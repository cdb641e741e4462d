"""The networks of learned drafters, wired once over a few operators that each backend supplies.

A drafter's network shares the target's embedding and LM head (:class:`SharedWeights`) and adds
matrices and transformer blocks of its own (:class:`Operators`): numpy here, the compiled core or
torch where the target runs there. Rows, pending rows and commit are those of
:class:`~slipstream.models.base.TargetModel`, and logits are as wide as the drafter's vocabulary.

Knows no trees, no drawing and no requests.
Shape letters: R rows, L rows that want logits, B sequences, H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from array_api_compat import array_namespace

from slipstream.config import EngineConfig
from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import Unsupported
from slipstream.models.base import ForwardOutput, IntArray, Rows, TargetModel
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.layout import FINAL_NORM
from slipstream.types import Array

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


class Stack(Protocol):
    """Transformer blocks with a cache for many sequences, fed with vectors."""

    def open(self) -> int: ...

    def close(self, sequence: int) -> None: ...

    def length(self, sequence: int) -> int:
        """Committed rows of a sequence."""
        ...

    def forward(self, rows: Rows) -> Array:
        """(R, H) output of the last block, normed if the stack has a final norm.

        ``rows.vectors`` is the input; tokens are not looked at. Raises as a target's does.
        """
        ...

    def commit(self, sequence: int, path: Sequence[int]) -> None: ...

    def truncate(self, sequence: int, length: int) -> None: ...


class Operators(Protocol):
    """What a backend does for a drafter's own weights."""

    def asarray(self, values: Array) -> Array:
        """Any array as one of this backend."""
        ...

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        """x W^T + b."""
        ...

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        """The blocks ``model.layers.*`` and, if asked for, ``model.norm``."""
        ...


def operators_for(target: TargetModel, config: EngineConfig) -> Operators:
    """The operators of the backend that runs the target; numpy's where it has none."""
    from slipstream.drafters.numpy_operators import NumpyOperators
    from slipstream.models.native import NativeModel

    if isinstance(target, NativeModel):
        from slipstream.drafters.native_operators import NativeOperators

        return NativeOperators(config)
    if hasattr(target, "device") and isinstance(target, SharedWeights):
        from slipstream.drafters.torch_operators import TorchOperators

        return TorchOperators(target.embed(np.zeros(1, np.int64)))
    return NumpyOperators()


def shared_weights(target: TargetModel) -> SharedWeights:
    """The target as a lender of embedding and head.

    Raises:
        Unsupported: its backend doesn't lend them.
    """
    if not isinstance(target, SharedWeights):
        raise Unsupported(
            f"the backend of {target.info.name!r} doesn't share its embedding and LM head, "
            "which a learned drafter is built on"
        )
    return target


class EagleNetwork:
    """Feature-level autoregression (EAGLE, Li et al. 2401.15077).

    One row takes a token and the feature at the position before it, and predicts the feature at
    the token's own position; the LM head turns that into the distribution of the next token.
    """

    def __init__(
        self, checkpoint: DrafterCheckpoint, shared: SharedWeights, operators: Operators
    ) -> None:
        config = checkpoint.config
        assert config.layers is not None
        self.vocabulary = TrimmedVocabulary(config.target.vocab_size, checkpoint.vocabulary)
        self.max_context = config.layers.max_context
        self._shared, self._operators = shared, operators
        self._fc = operators.linear(
            checkpoint.stored("fc.weight"),
            checkpoint.stored("fc.bias") if "fc.bias" in checkpoint else None,
        )
        self._stack = operators.stack(
            config.layers.model(hidden_size=config.target.hidden_size, vocab_size=0),
            checkpoint.stored,
            final_norm=FINAL_NORM in checkpoint,
        )
        self._head = shared.head(checkpoint.vocabulary)
        self.open = self._stack.open
        self.close = self._stack.close
        self.length = self._stack.length
        self.commit = self._stack.commit

    def forward(self, rows: Rows) -> ForwardOutput:
        """Feed rows: ``tokens``, and ``vectors`` the feature before each. They become pending.

        Returns:
            (L, v) logits for the rows that want them, and (R, H) predicted features.
        """
        operators = self._operators
        embedded = operators.asarray(self._shared.embed(rows.tokens))
        features = operators.asarray(rows.vectors)
        xp = array_namespace(features)
        inputs = self._fc(xp.concat([embedded, features], axis=-1))
        predicted = self._stack.forward(
            Rows(sequences=rows.sequences, tokens=rows.tokens, parents=rows.parents, vectors=inputs)
        )
        wanted = predicted if rows.wants_logits is None else predicted[rows.wants_logits]
        return ForwardOutput(logits=self._head(wanted), features=predicted)


class MedusaNetwork:
    """Medusa heads (Cai et al. 2401.10774): head i guesses the token i + 2 places after a feature.

    logits_i = LMhead(h + SiLU(W_i h + b_i)).
    """

    def __init__(
        self, checkpoint: DrafterCheckpoint, shared: SharedWeights, operators: Operators
    ) -> None:
        config = checkpoint.config
        self.vocabulary = TrimmedVocabulary(config.target.vocab_size, checkpoint.vocabulary)
        self._operators = operators
        self._blocks = [
            operators.linear(
                checkpoint.stored(f"heads.{i}.linear.weight"),
                checkpoint.stored(f"heads.{i}.linear.bias"),
            )
            for i in range(config.heads)
        ]
        self._head = shared.head(checkpoint.vocabulary)

    def __len__(self) -> int:
        return len(self._blocks)

    def forward(self, features: Array, heads: int) -> Array:
        """Logits of the first ``heads`` heads: (B, H) features to (B, heads, v)."""
        features = self._operators.asarray(features)
        xp = array_namespace(features)
        hidden = xp.stack(
            [features + silu(block(features)) for block in self._blocks[:heads]], axis=1
        )
        logits = self._head(xp.reshape(hidden, (-1, features.shape[-1])))
        return array_namespace(logits).reshape(logits, (features.shape[0], heads, -1))


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)), written with tanh so that nothing overflows."""
    return x * (0.5 + 0.5 * array_namespace(x).tanh(0.5 * x))
