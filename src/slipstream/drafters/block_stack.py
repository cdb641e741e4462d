"""A drafter's blocks as a stack, inside the model class of whatever backend runs the target.

A target model that is fed with vectors and asked for hidden states *is* a stack of blocks. So
nothing about transformers is written here: a checkpoint view with the drafter's blocks, a few
made-up tokens (on which a backend may try itself out) and, if it lacks one, a final norm that is
never read, is opened with the backend's own model class. R rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream.models.base import FeatureRequest, Rows, TargetModel
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.layout import EMBEDDING, FINAL_NORM, tensor_shapes
from slipstream.types import Array

_TOKENS: Final = 8


class BareBlocks:
    """A checkpoint of blocks only; see :class:`slipstream.models.checkpoint.Checkpoint`.

    Args:
        config: of the blocks; its vocabulary and head are not used.
        tensors: the drafter's tensors by name.
        final_norm: whether ``model.norm.weight`` is among them.
    """

    def __init__(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> None:
        self.name, self.fingerprint = "drafter", ""
        self.config = replace(config, vocab_size=_TOKENS, tie_embeddings=True)
        self._tensors, self._final_norm = tensors, final_norm

    @property
    def tokenizer(self) -> Any:
        raise AssertionError("blocks read vectors, not text")

    def names(self) -> Sequence[str]:
        return list(tensor_shapes(self.config))

    def stored(self, name: str) -> StoredTensor:
        if name == EMBEDDING:
            made_up = np.random.default_rng(0).normal(size=(_TOKENS, self.config.hidden_size))
            return StoredTensor("f32", made_up.shape, made_up.astype(np.float32))
        if name == FINAL_NORM and not self._final_norm:
            ones = np.ones(self.config.hidden_size, np.float32)
            return StoredTensor("f32", ones.shape, ones)
        return self._tensors(name)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        return dequantize(self.stored(name))


class BlockStack:
    """A model of :class:`BareBlocks` as a :class:`slipstream.drafters.network.Stack`."""

    def __init__(self, model: TargetModel, *, final_norm: bool) -> None:
        self._model = model
        self._last_block = model.info.num_layers - 1
        self._final_norm = final_norm
        layers = () if final_norm else (self._last_block,)
        self._wanted = FeatureRequest(last=final_norm, layers=layers)
        self.open = model.open
        self.close = model.close
        self.length = model.length
        self.commit = model.commit
        self.truncate = model.truncate

    def forward(self, rows: Rows) -> Array:
        """(R, H) output of the last block, normed if the drafter has a final norm."""
        without_logits = Rows(
            sequences=rows.sequences,
            tokens=rows.tokens,
            parents=rows.parents,
            wants_logits=np.zeros(len(rows), np.bool_),
            vectors=rows.vectors,
        )
        output = self._model.forward(without_logits, self._wanted)
        return output.features if self._final_norm else output.layer_features[self._last_block]
