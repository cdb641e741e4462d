"""Llama-family blocks of a checkpoint as a transformers model, so that torch runs drafters too."""

from __future__ import annotations

from typing import Any, Final

import torch
import transformers

from slipstream.models.checkpoint import Checkpoint, LlamaConfig
from slipstream.models.hf import HuggingFaceModel

_CLASSES: Final = {
    "llama": (transformers.LlamaConfig, transformers.LlamaForCausalLM),
    "mistral": (transformers.MistralConfig, transformers.MistralForCausalLM),
    "qwen2": (transformers.Qwen2Config, transformers.Qwen2ForCausalLM),
    "qwen3": (transformers.Qwen3Config, transformers.Qwen3ForCausalLM),
}


def model_of(checkpoint: Checkpoint, *, device: torch.device) -> HuggingFaceModel:
    """Build the model that a checkpoint describes, in float32.

    Args:
        checkpoint: any Llama-family checkpoint.
        device: where it runs.
    """
    config_class, model_class = _CLASSES[checkpoint.config.architecture]
    model = model_class(config_class(**_settings(checkpoint.config)))
    weights = {
        name: torch.from_numpy(checkpoint.tensor(name).copy()) for name in checkpoint.names()
    }
    missing, unexpected = model.load_state_dict(weights, strict=False)
    assert not unexpected and set(missing) <= {"lm_head.weight"}, (missing, unexpected)
    model.tie_weights()
    return HuggingFaceModel(model.to(device), name=checkpoint.name)


def _settings(config: LlamaConfig) -> dict[str, Any]:
    rope: dict[str, Any] = {"rope_type": "default", "rope_theta": config.rope_theta}
    if (scaling := config.rope_scaling) is not None:
        rope |= {"rope_type": scaling.kind, "factor": scaling.factor}
        if scaling.kind == "llama3":
            rope |= {
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": scaling.original_context,
            }
    settings: dict[str, Any] = {
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "rms_norm_eps": config.rms_norm_eps,
        "max_position_embeddings": config.max_context,
        "tie_word_embeddings": config.tie_embeddings,
        "rope_parameters": rope,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    if config.architecture == "llama":
        settings["attention_bias"] = config.output_bias
    if config.architecture == "mistral":
        settings["sliding_window"] = None
    return settings
