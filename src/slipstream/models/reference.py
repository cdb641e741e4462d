"""The Llama family in plain numpy float32: the yardstick of the tests, and the fallback anywhere.

One pass is: embed the rows; per block, RMSNorm (Zhang & Sennrich 1910.07467), grouped-query
attention (Ainslie et al. 2305.13245) with rotary positions, added to the residual stream, RMSNorm,
SwiGLU (Shazeer 2002.05202), added as well; a last RMSNorm, and the LM head for the rows that want
logits. Biases (Qwen2) and norms of query and key heads (Qwen3) where the configuration has them.

Knows no file format and no sampling. Promises the contract of :class:`TargetModel`. Not bit-exact:
numpy's matrix product may round a row differently when other rows share the call.
Shape letters: R rows, S slots of a sequence (committed, then pending), Q query heads, K key heads,
G = Q/K queries per key head, D numbers per head, H hidden, V vocabulary, L blocks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidInput
from slipstream.models.base import (
    NO_FEATURES,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    IntArray,
    ModelInfo,
    Rows,
)
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.layout import EMBEDDING, FINAL_NORM, LM_HEAD
from slipstream.models.ledger import Ledger, Placement
from slipstream.models.prefill import prefill_in_chunks
from slipstream.models.reference_cache import ReferenceCache
from slipstream.models.rope import frequencies, rotate, rotation

F32 = npt.NDArray[np.float32]

_CHUNK: Final = 256
"""Rows per pass of a prefill: bounds the memory of the attention scores."""


class ReferenceModel:
    """A target model in numpy.

    Args:
        checkpoint: any source of a Llama-family model; its weights are held as float32.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        config = checkpoint.config
        self._config = config
        self._blocks = [_Block(checkpoint, layer) for layer in range(config.num_layers)]
        self._embedding = checkpoint.tensor(EMBEDDING)
        self._final_norm = checkpoint.tensor(FINAL_NORM)
        self._head = self._embedding if config.tie_embeddings else checkpoint.tensor(LM_HEAD)
        self._frequencies = frequencies(config)
        self._ledger = Ledger(vocab_size=config.vocab_size, max_context=config.max_context)
        self._caches: dict[int, ReferenceCache] = {}
        self.info = ModelInfo(
            name=checkpoint.name,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_layers,
            max_context=config.max_context,
            fingerprint=checkpoint.fingerprint,
        )
        self.capabilities = Capabilities(trees=True, features=True, bit_exact=False)

    def open(self) -> int:
        sequence = self._ledger.open()
        config = self._config
        self._caches[sequence] = ReferenceCache(
            config.num_layers, config.num_kv_heads, config.head_dim
        )
        return sequence

    def close(self, sequence: int) -> None:
        self._ledger.close(sequence)
        del self._caches[sequence]

    def length(self, sequence: int) -> int:
        return self._ledger.committed(sequence)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        return prefill_in_chunks(self, sequence, tokens, features, _CHUNK)

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        for layer in features.layers:
            if not 0 <= layer < self._config.num_layers:
                raise InvalidInput(f"no block {layer}; the model has {self._config.num_layers}")
        placement = self._ledger.place(rows)
        views = list(self._views(rows, placement))
        cos, sin = rotation(self._frequencies, placement.positions)
        stream = (
            self._embedding[rows.tokens]
            if rows.vectors is None
            else np.array(rows.vectors, np.float32)
        )
        kept: dict[int, F32] = {}
        for layer, block in enumerate(self._blocks):
            stream = stream + self._attend(layer, block, stream, cos, sin, views)
            stream = stream + block.feed_forward(stream)
            if layer in features.layers:
                kept[layer] = stream
        last = _rms_norm(stream, self._final_norm, self._config.rms_norm_eps)
        wanted = last if rows.wants_logits is None else last[rows.wants_logits]
        return ForwardOutput(
            logits=wanted @ self._head.T,
            features=last if features.last else None,
            layer_features=kept,
        )

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        before = self._ledger.committed(sequence)
        self._ledger.commit(sequence, path)
        self._caches[sequence].keep(before, path)

    def truncate(self, sequence: int, length: int) -> None:
        self._ledger.truncate(sequence, length)

    def embed(self, tokens: IntArray) -> F32:
        """(R, H) embeddings, for drafters that share them."""
        return self._embedding[tokens]

    def head(self, ids: IntArray | None) -> Callable[[F32], F32]:
        """The LM head of some tokens or all, for drafters: (R, H) features to (R, v) logits."""
        matrix = self._head if ids is None else self._head[ids]
        return lambda features: features @ matrix.T

    def _views(self, rows: Rows, placement: Placement) -> Iterator[_View]:
        """The rows of each sequence, and which of its slots each of them sees."""
        for sequence in dict.fromkeys(rows.sequences.tolist()):
            committed = self._ledger.committed(sequence)
            length = committed + self._ledger.pending(sequence)
            index = np.flatnonzero(rows.sequences == sequence)
            slots = committed + placement.slots[index]
            visible = np.zeros((len(index), length), np.bool_)
            visible[:, :committed] = True
            for row, slot in enumerate(placement.slots[index].tolist()):
                ancestors = self._ledger.ancestors(sequence, slot)
                visible[row, [committed + ancestor for ancestor in ancestors]] = True
            cache = self._caches[sequence]
            cache.reserve(length)
            yield _View(cache, index, slots, visible)

    def _attend(
        self, layer: int, block: _Block, stream: F32, cos: F32, sin: F32, views: Sequence[_View]
    ) -> F32:
        config = self._config
        heads, head_dim = config.num_kv_heads, config.head_dim
        queries, keys, values = block.project(stream)
        queries, keys = rotate(queries, cos, sin), rotate(keys, cos, sin)
        mixed = np.empty_like(queries)  # (R, Q, D)
        for view in views:
            cache, length = view.cache, view.visible.shape[1]
            cache.keys[layer, view.slots] = keys[view.index]
            cache.values[layer, view.slots] = values[view.index]
            # G neighbouring query heads share a key head: (R, Q, D) -> (K, G, R, D).
            grouped = queries[view.index].reshape(len(view.index), heads, -1, head_dim)
            grouped = grouped.transpose(1, 2, 0, 3)
            keys_KSD = cache.keys[layer, :length].transpose(1, 0, 2)
            values_KSD = cache.values[layer, :length].transpose(1, 0, 2)
            scores = grouped @ keys_KSD[:, None].swapaxes(-1, -2) * np.float32(head_dim**-0.5)
            weights = _softmax(np.where(view.visible, scores, np.float32(-np.inf)))
            out = weights @ values_KSD[:, None]  # (K, G, R, D)
            mixed[view.index] = out.transpose(2, 0, 1, 3).reshape(len(view.index), -1, head_dim)
        return block.output(mixed.reshape(len(stream), -1))


class _Block:
    """The weights of one transformer block and what is computed row by row."""

    def __init__(self, checkpoint: Checkpoint, layer: int) -> None:
        self._config = config = checkpoint.config
        prefix = f"model.layers.{layer}."
        self._weights = {
            name.removeprefix(prefix): checkpoint.tensor(name)
            for name in checkpoint.names()
            if name.startswith(prefix)
        }
        self._eps = config.rms_norm_eps

    def project(self, stream: F32) -> tuple[F32, F32, F32]:
        """Queries (R, Q, D), keys and values (R, K, D), not rotated yet."""
        config = self._config
        normed = _rms_norm(stream, self._weights["input_layernorm.weight"], self._eps)
        query_heads = (-1, config.num_heads, config.head_dim)
        key_heads = (-1, config.num_kv_heads, config.head_dim)
        queries = self._linear("self_attn.q_proj", normed).reshape(query_heads)
        keys = self._linear("self_attn.k_proj", normed).reshape(key_heads)
        values = self._linear("self_attn.v_proj", normed).reshape(key_heads)
        if config.qk_norm:
            queries = _rms_norm(queries, self._weights["self_attn.q_norm.weight"], self._eps)
            keys = _rms_norm(keys, self._weights["self_attn.k_norm.weight"], self._eps)
        return queries, keys, values

    def output(self, mixed: F32) -> F32:
        """(R, Q*D) mixed values to the residual stream (R, H)."""
        return self._linear("self_attn.o_proj", mixed)

    def feed_forward(self, stream: F32) -> F32:
        """SwiGLU: (R, H) to (R, H)."""
        normed = _rms_norm(stream, self._weights["post_attention_layernorm.weight"], self._eps)
        gate = self._linear("mlp.gate_proj", normed)
        return self._linear("mlp.down_proj", _silu(gate) * self._linear("mlp.up_proj", normed))

    def _linear(self, name: str, x: F32) -> F32:
        product: F32 = x @ self._weights[f"{name}.weight"].T
        bias = self._weights.get(f"{name}.bias")
        return product if bias is None else product + bias


@dataclass(frozen=True)
class _View:
    """One sequence's share of a pass: its rows, their slots, and (rows, S) what each sees."""

    cache: ReferenceCache
    index: IntArray
    slots: IntArray
    visible: npt.NDArray[np.bool_]


def _rms_norm(x: F32, weight: F32, eps: float) -> F32:
    return np.asarray(
        x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight, np.float32
    )


def _silu(x: F32) -> F32:
    # exp of a large negative number overflows to inf, and x/inf = -0 is the right limit.
    with np.errstate(over="ignore"):
        return np.asarray(x / (1 + np.exp(-x)), np.float32)


def _softmax(scores: F32) -> F32:
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=-1, keepdims=True), np.float32)
