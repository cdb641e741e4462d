"""Which tensors a Llama-family model consists of, by Hugging Face name, and the shape of each.

Read off a :class:`LlamaConfig`; both sources of weights check themselves against it, so that a
missing, surplus or misshapen tensor is found when a model is opened. Also the fingerprint, which
both compute alike.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Mapping

import numpy as np

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import LlamaConfig, StoredTensor

EMBEDDING, FINAL_NORM, LM_HEAD = "model.embed_tokens.weight", "model.norm.weight", "lm_head.weight"

_SAMPLES, _SAMPLE_BYTES = 8, 64


def tensor_shapes(config: LlamaConfig) -> dict[str, tuple[int, ...]]:
    """Every tensor's shape, (outputs, inputs) for matrices; a tied LM head is not listed."""
    hidden, inner = config.hidden_size, config.intermediate_size
    queries = config.num_heads * config.head_dim
    keys = config.num_kv_heads * config.head_dim
    block: dict[str, tuple[int, ...]] = {
        "input_layernorm.weight": (hidden,),
        "self_attn.q_proj.weight": (queries, hidden),
        "self_attn.k_proj.weight": (keys, hidden),
        "self_attn.v_proj.weight": (keys, hidden),
        "self_attn.o_proj.weight": (hidden, queries),
        "post_attention_layernorm.weight": (hidden,),
        "mlp.gate_proj.weight": (inner, hidden),
        "mlp.up_proj.weight": (inner, hidden),
        "mlp.down_proj.weight": (hidden, inner),
    }
    if config.attention_bias:
        block |= {
            "self_attn.q_proj.bias": (queries,),
            "self_attn.k_proj.bias": (keys,),
            "self_attn.v_proj.bias": (keys,),
        }
    if config.output_bias:
        block["self_attn.o_proj.bias"] = (hidden,)
    if config.qk_norm:
        block |= {
            "self_attn.q_norm.weight": (config.head_dim,),
            "self_attn.k_norm.weight": (config.head_dim,),
        }
    shapes: dict[str, tuple[int, ...]] = {EMBEDDING: (config.vocab_size, hidden)}
    for layer in range(config.num_layers):
        shapes |= {f"model.layers.{layer}.{name}": shape for name, shape in block.items()}
    shapes[FINAL_NORM] = (hidden,)
    if not config.tie_embeddings:
        shapes[LM_HEAD] = (config.vocab_size, hidden)
    return shapes


def check_config(source: str, config: LlamaConfig) -> None:
    """Refuse sizes and numbers that no model can have, before anything is computed from them.

    Raises:
        CorruptModel: names them.
    """
    if config.num_heads % config.num_kv_heads or config.head_dim % 2:
        raise CorruptModel(
            f"{source}: {config.num_heads} heads of {config.head_dim} numbers and "
            f"{config.num_kv_heads} key heads don't go together"
        )
    numbers = {"rms_norm_eps": config.rms_norm_eps, "rope_theta": config.rope_theta}
    if scaling := config.rope_scaling:
        numbers["rope factor"] = scaling.factor
        if scaling.kind == "llama3":
            numbers["low_freq_factor"] = scaling.low_freq_factor
            numbers["original context"] = scaling.original_context
            numbers["high - low freq factor"] = scaling.high_freq_factor - scaling.low_freq_factor
    for name, value in numbers.items():
        if not 0 < value < math.inf:
            raise CorruptModel(f"{source}: {name} = {value} is no positive number")


def check_tensors(source: str, config: LlamaConfig, present: Mapping[str, tuple[int, ...]]) -> None:
    """Compare the tensors of a file with what its configuration asks for.

    Args:
        source: the file, for messages.
        present: Hugging Face name -> shape.

    Raises:
        CorruptModel: one is missing or has another shape.
        UnsupportedModel: one is not part of the architecture and would go unused.
    """
    if config.num_layers > len(present):  # before a forged number becomes a long list
        raise CorruptModel(f"{source}: {config.num_layers} blocks, but {len(present)} tensors")
    expected = tensor_shapes(config)
    for name, shape in expected.items():
        if name not in present:
            raise CorruptModel(f"{source}: tensor {name!r} is missing")
        if present[name] != shape:
            raise CorruptModel(
                f"{source}: tensor {name!r} has shape {present[name]}, "
                f"the configuration says {shape}"
            )
    for name in present:
        if name not in expected:
            raise UnsupportedModel(
                f"{source}: tensor {name!r} is not part of a {config.architecture} model"
            )


def fingerprint(
    config: LlamaConfig, names: Iterable[str], stored: Callable[[str], StoredTensor]
) -> str:
    """Hash of the configuration and of a few bytes spread over every tensor."""
    digest = hashlib.sha256(repr(config).encode())
    for name in names:
        tensor = stored(name)
        digest.update(f"{name} {tensor.format} {tensor.shape}".encode())
        raw = tensor.data.reshape(-1).view(np.uint8)
        last = max(0, len(raw) - _SAMPLE_BYTES)
        for sample in range(_SAMPLES):
            start = last * sample // (_SAMPLES - 1)
            digest.update(raw[start : start + _SAMPLE_BYTES].tobytes())
    return digest.hexdigest()[:16]
