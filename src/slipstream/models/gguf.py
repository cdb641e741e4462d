"""A GGUF file as a checkpoint: architectures llama, qwen2 and qwen3, under Hugging Face names.

Knows ggml's metadata keys and tensor names, and that llama.cpp's converter reorders the rows of
Llama's query and key projections (it rotates neighbouring pairs, not halves), which is undone
here. Rows of quantised blocks move as bytes, so nothing is de-quantised or rounded on the way.
Whatever a file states and this reader doesn't honour is refused by name.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import LlamaConfig, RopeScaling, StoredTensor
from slipstream.models.dequantize import dequantize
from slipstream.models.gguf_file import GGUFFile
from slipstream.models.gguf_tokenizer import gguf_tokenizer
from slipstream.models.layout import (
    EMBEDDING,
    FINAL_NORM,
    LM_HEAD,
    check_config,
    check_tensors,
    fingerprint,
    tensor_shapes,
)
from slipstream.models.rope import frequency_factors
from slipstream.models.tokenizer import Tokenizer

ARCHITECTURES: Final = ("llama", "qwen2", "qwen3")

_GLOBAL: Final = {
    "token_embd.weight": EMBEDDING,
    "output_norm.weight": FINAL_NORM,
    "output.weight": LM_HEAD,
}
_BLOCK: Final = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_ROPE_FACTORS: Final = "rope_freqs.weight"

T = TypeVar("T")


class GGUFCheckpoint:
    """A :class:`~slipstream.models.checkpoint.Checkpoint` read from one GGUF file.

    Raises:
        CorruptModel, UnsupportedModel: see the classes; the message names the file and the reason.
    """

    def __init__(self, path: str | Path) -> None:
        path = Path(path)
        self._file = GGUFFile(path)
        self._metadata = self._file.metadata
        self.name: str = path.stem
        architecture = self._entry("general.architecture", str)
        if architecture not in ARCHITECTURES:
            raise UnsupportedModel(
                f"{path.name}: architecture {architecture!r} isn't supported in GGUF files; "
                f"supported: {', '.join(ARCHITECTURES)}"
            )
        self._architecture: Literal["llama", "qwen2", "qwen3"] = architecture  # type: ignore[assignment]
        self._names = {_hugging_face_name(n): n for n in self._file.tensors if n != _ROPE_FACTORS}
        self.config = self._read_config()
        check_config(path.name, self.config)
        check_tensors(
            path.name, self.config, {n: self._file.tensors[g].shape for n, g in self._names.items()}
        )

    @property
    def licence(self) -> str | None:
        """What the file states, if anything."""
        stated = self._metadata.get("general.license")
        return stated if isinstance(stated, str) else None

    @cached_property
    def tokenizer(self) -> Tokenizer:
        return gguf_tokenizer(self._metadata)

    @cached_property
    def fingerprint(self) -> str:
        return fingerprint(self.config, self.names(), self.stored)

    def names(self) -> Sequence[str]:
        return list(tensor_shapes(self.config))

    def stored(self, name: str) -> StoredTensor:
        if name not in self._names:
            raise CorruptModel(f"{self._file.path.name}: tensor {name!r} is missing")
        tensor = self._file.tensors[self._names[name]]
        data = tensor.data
        if self._architecture == "llama":
            if ".q_proj." in name:
                data = _halves(data, self.config.num_heads)
            elif ".k_proj." in name:
                data = _halves(data, self.config.num_kv_heads)
        if tensor.format == "bf16":
            data = data.view(np.uint16)
        return StoredTensor(tensor.format, tensor.shape, data)

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        return dequantize(self.stored(name))

    def _read_config(self) -> LlamaConfig:
        a = self._architecture
        embedding = self._file.tensors.get("token_embd.weight")
        if embedding is None or len(embedding.shape) != 2:
            raise CorruptModel(f"{self._file.path.name}: no matrix 'token_embd.weight'")
        heads = self._size("attention.head_count")
        hidden = self._size("embedding_length")
        head_dim = self._size("attention.key_length", hidden // heads)
        context = self._size("context_length")
        self._refuse_unless("attention.value_length", head_dim)
        self._refuse_unless("rope.dimension_count", head_dim)
        self._refuse_unless("expert_count", 0)
        window = self._metadata.get(f"{a}.attention.sliding_window", 0)
        if not isinstance(window, int) or 0 < window < context:
            raise UnsupportedModel(
                f"{self._file.path.name}: sliding-window attention ({window} of {context} tokens) "
                "isn't supported"
            )
        theta = self._entry(f"{a}.rope.freq_base", float, 10000.0)
        return LlamaConfig(
            architecture=a,
            vocab_size=embedding.shape[0],
            hidden_size=hidden,
            intermediate_size=self._size("feed_forward_length"),
            num_layers=self._size("block_count"),
            num_heads=heads,
            num_kv_heads=self._size("attention.head_count_kv", heads),
            head_dim=head_dim,
            rms_norm_eps=self._entry(f"{a}.attention.layer_norm_rms_epsilon", float),
            rope_theta=theta,
            rope_scaling=self._rope_scaling(theta, head_dim),
            max_context=context,
            tie_embeddings=LM_HEAD not in self._names,
            attention_bias="model.layers.0.self_attn.q_proj.bias" in self._names,
            output_bias="model.layers.0.self_attn.o_proj.bias" in self._names,
            qk_norm=a == "qwen3",
        )

    def _rope_scaling(self, theta: float, head_dim: int) -> RopeScaling | None:
        a, file = self._architecture, self._file.path.name
        kind = self._entry(f"{a}.rope.scaling.type", str, "none")
        factor = self._entry(f"{a}.rope.scaling.factor", float, 1.0)
        factor = self._entry(f"{a}.rope.scale_linear", float, factor)
        if kind not in ("none", "linear"):
            raise UnsupportedModel(f"{file}: rotary scaling {kind!r} isn't supported")
        factors = self._file.tensors.get(_ROPE_FACTORS)
        if factors is None:
            return None if factor == 1.0 else RopeScaling(kind="linear", factor=factor)
        # Llama 3's scaling is stored as its result, one divisor per frequency. Every published
        # model has the same other three parameters; the divisors tell whether this one has.
        values = dequantize(StoredTensor(factors.format, factors.shape, factors.data))
        scaling = RopeScaling(kind="llama3", factor=float(values.max()))
        if (
            factor != 1.0
            or not 0 < theta < np.inf
            or not (np.isfinite(values) & (values >= 1)).all()
            or values.shape != (head_dim // 2,)
            or not np.allclose(values, frequency_factors(head_dim, theta, scaling), rtol=1e-4)
        ):
            raise UnsupportedModel(f"{file}: {_ROPE_FACTORS!r} holds no Llama 3 rotary scaling")
        return scaling

    def _entry(self, key: str, kind: type[T], default: T | None = None) -> T:
        value = self._metadata.get(key, default)
        if value is None:
            raise CorruptModel(f"{self._file.path.name}: metadata {key!r} is missing")
        if type(value) is not kind:
            raise CorruptModel(
                f"{self._file.path.name}: metadata {key!r} is {type(value).__name__}, "
                f"not {kind.__name__}"
            )
        return value

    def _size(self, key: str, default: int | None = None) -> int:
        value = self._entry(f"{self._architecture}.{key}", int, default)
        if value < 1:
            raise CorruptModel(f"{self._file.path.name}: metadata {key!r} is {value}")
        return value

    def _refuse_unless(self, key: str, supported: int) -> None:
        value = self._metadata.get(f"{self._architecture}.{key}", supported)
        if value != supported:
            raise UnsupportedModel(
                f"{self._file.path.name}: {key} = {value} isn't supported, only {supported}"
            )


def _hugging_face_name(name: str) -> str:
    """Unknown names stay as they are; the check against the layout refuses them."""
    match = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    if match and match[2] in _BLOCK:
        return f"model.layers.{match[1]}.{_BLOCK[match[2]]}.{match[3]}"
    return _GLOBAL.get(name, name)


def _halves(rows: npt.NDArray[np.generic], heads: int) -> npt.NDArray[np.generic]:
    """Rows of each head from (pair, half) order to Hugging Face's (half, pair) order."""
    split = rows.reshape(heads, -1, 2, *rows.shape[1:])
    return np.ascontiguousarray(split.swapaxes(1, 2)).reshape(rows.shape)
