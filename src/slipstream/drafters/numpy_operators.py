"""Drafter networks in numpy: the readable reference, and the fallback for every target.

The blocks are those of :class:`~slipstream.models.reference.ReferenceModel`, run on vectors instead
of tokens; nothing about a transformer is written here. R rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.drafters.network import Linear, Stack
from slipstream.models.base import FeatureRequest, Rows
from slipstream.models.checkpoint import LlamaConfig, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.layout import EMBEDDING, FINAL_NORM, tensor_shapes
from slipstream.models.reference import ReferenceModel
from slipstream.types import Array


class NumpyOperators:
    """See :class:`slipstream.drafters.network.Operators`."""

    def asarray(self, values: Array) -> npt.NDArray[np.float32]:
        if hasattr(values, "cpu"):  # a torch tensor, on whatever device
            values = values.detach().cpu()
        return np.asarray(values, np.float32)

    def linear(self, weight: StoredTensor, bias: StoredTensor | None) -> Linear:
        matrix = dequantize(weight)
        if bias is None:
            return lambda x: x @ matrix.T
        offset = dequantize(bias)
        return lambda x: x @ matrix.T + offset

    def stack(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], *, final_norm: bool
    ) -> Stack:
        return _NumpyStack(config, tensors, final_norm)


class _NumpyStack:
    def __init__(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], final_norm: bool
    ) -> None:
        self._model = ReferenceModel(_BareBlocks(config, tensors, final_norm))
        self._wanted = (
            FeatureRequest(last=True)
            if final_norm
            else FeatureRequest(layers=(config.num_layers - 1,))
        )
        self.open = self._model.open
        self.close = self._model.close
        self.length = self._model.length
        self.commit = self._model.commit
        self.truncate = self._model.truncate

    def forward(self, rows: Rows) -> Array:
        none = np.zeros(len(rows), np.bool_)
        output = self._model.forward(
            Rows(rows.sequences, rows.tokens, rows.parents, none, rows.vectors), self._wanted
        )
        if self._wanted.last:
            return output.features
        return output.layer_features[self._wanted.layers[0]]


class _BareBlocks:
    """A checkpoint with blocks only: an empty vocabulary, and a final norm that may be missing."""

    def __init__(
        self, config: LlamaConfig, tensors: Callable[[str], StoredTensor], final_norm: bool
    ) -> None:
        assert config.vocab_size == 0 and config.tie_embeddings
        self.name, self.fingerprint = "drafter", ""
        self.config = config
        self._tensors, self._final_norm = tensors, final_norm

    @property
    def tokenizer(self) -> Any:
        raise AssertionError("blocks read vectors, not text")

    def names(self) -> Sequence[str]:
        return list(tensor_shapes(self.config))

    def stored(self, name: str) -> StoredTensor:
        if name == EMBEDDING or (name == FINAL_NORM and not self._final_norm):
            shape = tensor_shapes(self.config)[name]
            return StoredTensor("f32", shape, np.ones(shape, np.float32))
        return self._tensors(name)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        return dequantize(self.stored(name))
