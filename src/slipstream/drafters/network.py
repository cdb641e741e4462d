"""The networks of learned drafters, wired once over a few operators that each backend supplies.

A drafter's network shares the target's embedding and LM head (:class:`SharedWeights`) and adds
matrices and transformer blocks of its own (:class:`Operators`): numpy here, the compiled core or
torch where the target runs there. Logits are as wide as the drafter's vocabulary.

Knows no trees, no drawing and no requests.
Shape letters: B sequences, H hidden, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from array_api_compat import array_namespace

from slipstream.config import EngineConfig
from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.decoder import Decoder, Linear, SharedWeights
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import Unsupported
from slipstream.models.base import IntArray, TargetModel
from slipstream.models.checkpoint import StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.types import Array


class Operators(Protocol):
    """What a backend does for a drafter's own weights."""

    def asarray(self, values: Array) -> Array:
        """Any array as one of this backend."""
        ...

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        """x W^T + b."""
        ...

    def head(self, shared: SharedWeights, ids: IntArray | None) -> Linear:
        """The target's LM head, of these tokens or of all, as exact as a guess needs it."""
        ...

    def decoder(self, checkpoint: DrafterCheckpoint, shared: SharedWeights) -> Decoder:
        """The network of a drafter with blocks."""
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
    the token's own position; the LM head turns that into the distribution of the next token. So
    ``forward`` is a decoder's with a fusion: its features are the predicted ones.
    """

    def __init__(
        self, checkpoint: DrafterCheckpoint, shared: SharedWeights, operators: Operators
    ) -> None:
        config = checkpoint.config
        assert config.layers is not None
        self.vocabulary = TrimmedVocabulary(config.target.vocab_size, checkpoint.vocabulary)
        self.max_context = config.layers.max_context
        self._decoder = operators.decoder(checkpoint, shared)
        self.open = self._decoder.open
        self.close = self._decoder.close
        self.length = self._decoder.length
        self.commit = self._decoder.commit
        self.forward = self._decoder.forward


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
        self._heads = config.heads
        names = [f"heads.{i}.linear" for i in range(config.heads)]
        self._blocks = operators.linear(
            _joined([checkpoint.stored(f"{name}.weight") for name in names]),
            _joined([checkpoint.stored(f"{name}.bias") for name in names]),
        )
        self._head = operators.head(shared, checkpoint.vocabulary)

    def __len__(self) -> int:
        return self._heads

    def forward(self, features: Array, heads: int) -> Array:
        """Logits of the first ``heads`` heads: (B, H) features to (B, heads, v)."""
        features = self._operators.asarray(features)
        xp = array_namespace(features)
        count, hidden = features.shape
        blocks = xp.reshape(self._blocks(features), (count, -1, hidden))[:, :heads]
        guesses = features[:, None, :] + silu(blocks)
        logits = self._head(xp.reshape(guesses, (-1, hidden)))
        return xp.reshape(logits, (count, heads, -1))


def _joined(parts: Sequence[StoredTensor]) -> StoredTensor:
    """The rows of all parts, one after the other; in float32 if they are stored differently."""
    formats = {part.format for part in parts}
    if len(formats) == 1:
        data, format = [part.data for part in parts], parts[0].format
    else:
        data, format = [dequantize(part) for part in parts], "f32"
    rows = sum(part.shape[0] for part in parts)
    return StoredTensor(format, (rows, *parts[0].shape[1:]), np.concatenate(data))


def silu(x: Array) -> Array:
    """x / (1 + exp(-x)), written with tanh so that nothing overflows."""
    return x * (0.5 + 0.5 * array_namespace(x).tanh(0.5 * x))
