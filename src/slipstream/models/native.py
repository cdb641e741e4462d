"""The compiled core as a target model: Llama-family checkpoints on the CPU, bit for bit.

The core computes each row in one fixed order that depends on nothing but the row's own tokens; see
``docs/kernels.md``. This class packs the weights, keeps the books and passes arrays back and forth.
Knows no drafting and no sampling. Promises the contract of :class:`TargetModel`, and more: a row's
bits don't depend on the rows that share its pass, on chunking, on the tree or on the thread count.
Shape letters: R rows, L rows with logits, V vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.errors import CorruptModel, InvalidInput, Unsupported
from slipstream.kernels.cores import physical_cores
from slipstream.kernels.packed import Bytes, PackedFormat
from slipstream.models.base import (
    NO_FEATURES,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    IntArray,
    ModelInfo,
    Rows,
)
from slipstream.models.catalog import Progress
from slipstream.models.checkpoint import Checkpoint, LlamaConfig
from slipstream.models.layout import FINAL_NORM
from slipstream.models.ledger import Ledger
from slipstream.models.native_weights import (
    DOWN,
    OUTPUT,
    PANEL,
    QKV,
    WeightPlan,
    head_places,
)
from slipstream.models.packed_cache import load_or_pack
from slipstream.models.prefill import prefill_in_chunks
from slipstream.models.rope import frequencies
from slipstream.models.row_passes import in_passes

F32 = npt.NDArray[np.float32]

MAX_ROWS: Final = 1024
"""Most rows of one pass of the core; more are several."""

_CHUNK: Final = 256
"""Rows per pass of a prefill."""


class NativeModel:
    """A target model in the compiled core.

    Args:
        checkpoint: any source of a Llama-family model.
        config: weights, activations, threads.
        num_layers: run only the first blocks (with the final norm and head), for drafters.
        progress: told how far packing is.

    Raises:
        Unsupported: no compiled core here, or int8 activations with weights they don't go with.
        CorruptModel: weights that are not finite.
        UnknownName: SLIPSTREAM_ISA names no instruction set of this machine.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        config: EngineConfig | None = None,
        *,
        num_layers: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        engine = config or EngineConfig()
        model = checkpoint.config
        layers = model.num_layers if num_layers is None else num_layers
        if not 1 <= layers <= model.num_layers:
            raise InvalidInput(f"num_layers must be in [1, {model.num_layers}], not {num_layers}")
        self.isa = kernels.isa()
        self.threads = engine.threads or physical_cores()
        activations = "f32" if engine.weights == "f32" else engine.activations
        if engine.weights == "f32" and engine.activations == "int8":
            raise Unsupported("int8 activations need int8 or 4-bit weights, not f32")
        plan = WeightPlan(checkpoint, engine.weights, layers)
        if activations == "int8":
            plan.check_int8()
        block = load_or_pack(
            plan,
            "" if engine.weights == "f32" else checkpoint.fingerprint,  # a yardstick isn't kept
            lambda memory: plan.pack(memory, threads=self.threads, progress=progress),
        )
        self._config, self._activations = model, activations
        self._stack = kernels.native().Stack(
            stack_shape(model, activations), self.isa, self.threads
        )
        add_blocks(self._stack, plan, block, checkpoint, layers)
        self.lent = self._add_ends(plan, block, checkpoint)
        self.weight_bytes = plan.bytes
        self._ledger = Ledger(vocab_size=model.vocab_size, max_context=model.max_context)
        self._handles: dict[int, int] = {}
        self.info = ModelInfo(
            name=checkpoint.name,
            vocab_size=model.vocab_size,
            hidden_size=model.hidden_size,
            num_layers=layers,
            max_context=model.max_context,
            fingerprint=checkpoint.fingerprint,
        )
        self.capabilities = Capabilities(trees=True, features=True, bit_exact=True)

    def open(self) -> int:
        sequence = self._ledger.open()
        self._handles[sequence] = self._stack.open()
        return sequence

    def close(self, sequence: int) -> None:
        self._ledger.close(sequence)
        self._stack.close(self._handles.pop(sequence))

    def length(self, sequence: int) -> int:
        return self._ledger.committed(sequence)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        return prefill_in_chunks(self, sequence, tokens, features, _CHUNK)

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        count, hidden = len(rows.tokens), self.info.hidden_size
        for layer in features.layers:
            if not 0 <= layer < self.info.num_layers:
                raise InvalidInput(f"no block {layer}; the model has {self.info.num_layers}")
        if rows.vectors is not None and np.shape(rows.vectors) != (count, hidden):
            raise InvalidInput(
                f"vectors must be of shape ({count}, {hidden}), not {np.shape(rows.vectors)}"
            )
        self._ledger.append(rows)
        return in_passes(rows, MAX_ROWS, lambda part: self._pass(part, features))

    def _pass(self, rows: Rows, features: FeatureRequest) -> ForwardOutput:
        count, hidden = len(rows.tokens), self.info.hidden_size
        vectors = None if rows.vectors is None else np.ascontiguousarray(rows.vectors, np.float32)
        wanted = (
            list(range(count))
            if rows.wants_logits is None
            else np.flatnonzero(rows.wants_logits).tolist()
        )
        logits = np.empty((len(wanted), self.info.vocab_size), np.float32)
        last = np.empty((count, hidden), np.float32) if features.last else None
        kept: dict[int, F32] = {}
        for layer in features.layers:
            kept[layer] = np.empty((count, hidden), np.float32)
        self._stack.forward(
            list(map(self._handles.__getitem__, rows.sequences.tolist())),
            rows.parents.tolist(),
            None if vectors is not None else rows.tokens.tolist(),
            vectors,
            wanted,
            0,
            logits if wanted else None,
            last,
            list(kept.items()),
        )
        return ForwardOutput(logits=logits, features=last, layer_features=kept)

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self._ledger.commit(sequence, path)
        self._stack.commit(self._handles[sequence], list(path))

    def truncate(self, sequence: int, length: int) -> None:
        self._ledger.truncate(sequence, length)
        self._stack.truncate(self._handles[sequence], length)

    def embed(self, tokens: IntArray) -> F32:
        """(R, H) embeddings, for drafters that share them."""
        ids = np.ascontiguousarray(tokens, np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.info.vocab_size:
            raise InvalidInput(f"token outside the vocabulary [0, {self.info.vocab_size})")
        out = np.empty((len(ids), self.info.hidden_size), np.float32)
        self._stack.embed(ids, out)
        return out

    def head(self, ids: IntArray | None) -> Callable[[F32], F32]:
        """The LM head of some tokens or all, for drafters: (R, H) features to (R, v) logits."""
        head = 0 if ids is None else self._stack.trim_head(np.asarray(ids, np.int64).tolist())
        width = self.info.vocab_size if ids is None else len(ids)

        def logits(features: F32) -> F32:
            vectors = np.ascontiguousarray(features, np.float32)
            out = np.empty((len(vectors), width), np.float32)
            if len(vectors):
                self._stack.apply_head(head, vectors, False, out)
            return out

        return logits

    def _add_ends(self, plan: WeightPlan, block: Bytes, checkpoint: Checkpoint) -> LentMatrices:
        embedding = plan.matrices["embedding"]
        head = embedding if self._config.tie_embeddings else plan.matrices["head"]
        lent = LentMatrices(
            activations=self._activations,
            embedding=embedding.shape.view(embedding.memory(block)),
            head=head.shape.view(head.memory(block)),
            head_format=head.shape.format,
        )
        self._stack.set_embedding(lent.embedding)
        self._stack.set_final_norm(vector(checkpoint, FINAL_NORM))
        self._stack.add_head(lent.head, self._config.vocab_size)
        return lent


@dataclass(frozen=True)
class LentMatrices:
    """Packed matrices that the core's drafters share; H inputs, V outputs.

    Args:
        activations: what the target runs with.
        embedding, head: the extension's handles; the same if they are tied.
        head_format: of the head.
    """

    activations: str
    embedding: Any
    head: Any
    head_format: PackedFormat


def stack_shape(model: LlamaConfig, activations: str) -> dict[str, Any]:
    """What the extension's ``Stack`` is made from."""
    return {
        "hidden": model.hidden_size,
        "intermediate": model.intermediate_size,
        "heads": model.num_heads,
        "kv_heads": model.num_kv_heads,
        "head_dim": model.head_dim,
        "vocab": model.vocab_size,
        "max_context": model.max_context,
        "max_rows": MAX_ROWS,
        "eps": model.rms_norm_eps,
        "activations": activations,
        "wide_cache": activations == "f32",
        "frequencies": [float(value) for value in frequencies(model)],
    }


def add_blocks(
    stack: Any, plan: WeightPlan, block: Bytes, checkpoint: Checkpoint, layers: int
) -> None:
    """Hand the packed matrices and the float32 vectors of the blocks to the core."""

    def matrix(name: str) -> Any:
        packed = plan.matrices[name]
        return packed.shape.view(packed.memory(block))

    model = checkpoint.config
    for layer in range(layers):
        prefix = f"model.layers.{layer}."
        if prefix + "qkv" in plan.matrices:
            qkv = [(matrix(prefix + "qkv"), 0)]
        else:
            qkv, column = [], 0
            for name in QKV:
                qkv.append((matrix(f"{prefix}{name}.weight"), column))
                column += plan.matrices[f"{prefix}{name}.weight"].shape.rows
        vectors = {
            "attention_norm": vector(checkpoint, prefix + "input_layernorm.weight"),
            "ffn_norm": vector(checkpoint, prefix + "post_attention_layernorm.weight"),
        }
        if model.qk_norm:
            vectors["query_norm"] = vector(checkpoint, prefix + "self_attn.q_norm.weight")
            vectors["key_norm"] = vector(checkpoint, prefix + "self_attn.k_norm.weight")
        if model.attention_bias:
            biases = [vector(checkpoint, f"{prefix}{name}.bias") for name in QKV]
            vectors["qkv_bias"] = _padded_heads(np.concatenate(biases), model.head_dim)
        if model.output_bias:
            vectors["output_bias"] = vector(checkpoint, f"{prefix}{OUTPUT}.bias")
        stack.add_layer(
            qkv, matrix(prefix + OUTPUT), matrix(prefix + "gate_up"), matrix(prefix + DOWN), vectors
        )


def vector(checkpoint: Checkpoint, name: str) -> F32:
    """A norm's or a bias's numbers, checked."""
    values = np.ascontiguousarray(checkpoint.tensor(name), np.float32)
    if not np.isfinite(values).all():
        raise CorruptModel(f"{checkpoint.name}: {name} has a number that is not finite")
    return values


def _padded_heads(values: F32, head_dim: int) -> F32:
    padded = -(-head_dim // PANEL) * PANEL
    heads = len(values) // head_dim
    out = np.zeros(heads * padded, np.float32)
    out[head_places(heads, head_dim, padded)] = values
    return out
