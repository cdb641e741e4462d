"""Hugging Face's config.json of a Llama-family model, read into a :class:`LlamaConfig`.

Both spellings of the rotary settings are read: ``rope_theta`` and ``rope_scaling`` of transformers
4, ``rope_parameters`` of transformers 5. What would change the computation and isn't implemented
(sliding windows that are active, other activations or rotary types, quantised weights) is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from slipstream.errors import CorruptModel, UnsupportedModel
from slipstream.models.checkpoint import LlamaConfig, RopeScaling

ARCHITECTURES: Final = ("llama", "mistral", "qwen2", "qwen3")

T = TypeVar("T", int, float, str, bool)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file.

    Raises:
        CorruptModel: missing, unreadable, or no JSON object.
    """
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CorruptModel(f"{path} can't be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CorruptModel(f"{path} is no valid JSON") from None
    if not isinstance(value, dict):
        raise CorruptModel(f"{path} holds no JSON object")
    return value


def llama_config(config: Mapping[str, Any]) -> LlamaConfig:
    """Translate.

    Raises:
        UnsupportedModel: another architecture, or a setting that isn't implemented; names it.
        CorruptModel: a setting that is missing or makes no sense.
    """
    architecture: Literal["llama", "mistral", "qwen2", "qwen3"] = config.get("model_type")  # type: ignore[assignment]
    if architecture not in ARCHITECTURES:
        raise UnsupportedModel(
            f"architecture {architecture!r} isn't supported here; "
            f"supported: {', '.join(ARCHITECTURES)}"
        )
    if config.get("quantization_config"):
        method = config["quantization_config"]
        method = method.get("quant_method") if isinstance(method, Mapping) else method
        raise UnsupportedModel(f"weights quantised with {method!r} aren't supported")
    for key, supported in (("hidden_act", "silu"), ("mlp_bias", False)):
        if config.get(key, supported) != supported:
            raise UnsupportedModel(f"{key} = {config[key]!r} isn't supported, only {supported!r}")

    heads, hidden = _size(config, "num_attention_heads"), _size(config, "hidden_size")
    head_dim = config.get("head_dim") or (128 if architecture == "qwen3" else hidden // heads)
    kv_heads = config.get("num_key_value_heads")
    if kv_heads is None and architecture == "llama":
        kv_heads = heads
    context = _size(config, "max_position_embeddings")
    _refuse_sliding_window(config, context)
    theta, scaling = _rope(config, context)
    biased = _get(config, "attention_bias", bool, False)
    return LlamaConfig(
        architecture=architecture,
        vocab_size=_size(config, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_size(config, "intermediate_size"),
        num_layers=_size(config, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_size({"num_key_value_heads": kv_heads}, "num_key_value_heads"),
        head_dim=_size({"head_dim": head_dim}, "head_dim"),
        rms_norm_eps=_get(config, "rms_norm_eps", float, 1e-6),
        rope_theta=theta,
        rope_scaling=scaling,
        max_context=context,
        tie_embeddings=_get(config, "tie_word_embeddings", bool, False),
        attention_bias=architecture == "qwen2" or (architecture != "mistral" and biased),
        output_bias=architecture in ("llama", "qwen3") and biased,
        qk_norm=architecture == "qwen3",
    )


def _rope(config: Mapping[str, Any], context: int) -> tuple[float, RopeScaling | None]:
    stated = config.get("rope_parameters") or config.get("rope_scaling") or {}
    if not isinstance(stated, Mapping):
        raise CorruptModel(f"rotary settings make no sense: {stated!r}")
    stated = {"rope_theta": config.get("rope_theta", 10000.0), **stated}
    theta = _get(stated, "rope_theta", float)
    if stated.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnsupportedModel(f"rotary settings aren't supported: {stated!r}")
    kind = stated.get("rope_type", stated.get("type", "default"))
    if kind == "default":
        return theta, None
    if kind == "linear":
        return theta, RopeScaling(kind="linear", factor=_get(stated, "factor", float))
    if kind == "llama3":
        return theta, RopeScaling(
            kind="llama3",
            factor=_get(stated, "factor", float),
            low_freq_factor=_get(stated, "low_freq_factor", float),
            high_freq_factor=_get(stated, "high_freq_factor", float),
            original_context=_get(stated, "original_max_position_embeddings", int, context),
        )
    raise UnsupportedModel(
        f"rotary scaling {kind!r} isn't supported; supported: default, linear, llama3"
    )


def _refuse_sliding_window(config: Mapping[str, Any], context: int) -> None:
    window = config.get("sliding_window")
    if window is None or window >= context or not config.get("use_sliding_window", True):
        return
    if "layer_types" in config and "sliding_attention" not in (config["layer_types"] or ()):
        return
    raise UnsupportedModel(f"sliding-window attention ({window} of {context}) isn't supported")


def _get(config: Mapping[str, Any], key: str, kind: type[T], default: T | None = None) -> T:
    value = config.get(key, default)
    if kind is float and type(value) is int:
        value = float(value)
    if value is None or type(value) is not kind:
        raise CorruptModel(f"config.json: {key} = {value!r} is no {kind.__name__}")
    return value


def _size(config: Mapping[str, Any], key: str) -> int:
    value = _get(config, key, int)
    if value < 1:
        raise CorruptModel(f"config.json: {key} = {value} is below 1")
    return value
