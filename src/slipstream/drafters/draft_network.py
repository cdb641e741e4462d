"""A distilled decoder over the target's embedding and head, as a model that can draft by itself.

The ``draft`` architecture of our checkpoints: blocks of its own between the target's embedding and
(possibly trimmed) LM head. It is a model like any other, with the target's vocabulary: what a
trimmed head can't propose has logit minus infinity. Its drafter takes the logits before that.
R rows, L rows that want logits, H hidden, v drafter vocabulary, V target vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from slipstream.drafters.checkpoint import DrafterCheckpoint
from slipstream.drafters.decoder import SharedWeights
from slipstream.drafters.network import Operators
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import InvalidInput, Unsupported
from slipstream.models.base import (
    NO_FEATURES,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    ModelInfo,
    Rows,
)
from slipstream.types import Array

_CHUNK: Final = 256
"""Rows per pass of a prefill."""


class DraftNetwork:
    """A :class:`~slipstream.models.base.TargetModel` made of a checkpoint and a lender.

    Args:
        checkpoint: of architecture ``draft``.
        shared: the target's embedding and head.
        operators: the backend that runs the blocks.
    """

    def __init__(
        self, checkpoint: DrafterCheckpoint, shared: SharedWeights, operators: Operators
    ) -> None:
        config = checkpoint.config
        assert config.architecture == "draft" and config.layers is not None
        self.info = ModelInfo(
            name=str(checkpoint.path),
            vocab_size=config.target.vocab_size,
            hidden_size=config.target.hidden_size,
            num_layers=config.layers.num_layers,
            max_context=config.layers.max_context,
            fingerprint=config.target.fingerprint,
        )
        self.capabilities = Capabilities(trees=True, features=False, bit_exact=False)
        self._decoder = operators.decoder(checkpoint, shared)
        self.vocabulary = TrimmedVocabulary(config.target.vocab_size, checkpoint.vocabulary)
        self.open = self._decoder.open
        self.close = self._decoder.close
        self.length = self._decoder.length
        self.commit = self._decoder.commit
        self.truncate = self._decoder.truncate

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        before = self.length(sequence)
        self.commit(sequence, [])
        output = ForwardOutput(logits=np.empty((0, self.info.vocab_size), np.float32))
        try:
            for start in range(0, len(tokens), _CHUNK):
                rows = Rows.chain(sequence, tokens[start : start + _CHUNK], logits=False)
                output = self.forward(rows, features)
                self.commit(sequence, range(len(rows)))
        except InvalidInput:
            self.truncate(sequence, before)  # all of the call or nothing
            raise
        return output

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        if features != NO_FEATURES:
            raise Unsupported("a draft network gives no features")
        return ForwardOutput(logits=self.vocabulary.widen(self.trimmed_logits(rows)))

    def trimmed_logits(self, rows: Rows) -> Array:
        """The same pass, with (L, v) logits over the drafter's own vocabulary."""
        bad = (rows.tokens < 0) | (rows.tokens >= self.info.vocab_size)
        if bad.any():
            raise InvalidInput(
                f"token {int(rows.tokens[bad][0])} is outside the vocabulary "
                f"[0, {self.info.vocab_size})"
            )
        return self._decoder.forward(rows).logits
