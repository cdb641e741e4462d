"""The few things inside a Hugging Face model that have no name common to all of them.

Where its blocks are, what it calls its cache, and what tells it from another model.
"""

from __future__ import annotations

import hashlib
import inspect
import json
from typing import Any

import torch


def cache_argument(model: Any) -> str:
    """What forward calls its cache; transformers renamed it during version 5."""
    for module in (model, model.base_model):
        parameters = inspect.signature(module.forward).parameters
        for name in ("past_key_values", "cache"):
            if name in parameters:
                return name
    return "past_key_values"


def blocks(model: Any, count: int) -> torch.nn.ModuleList | None:
    """The list of transformer blocks, None if it isn't obvious."""
    for module in (model.get_decoder() or model.base_model).modules():
        if isinstance(module, torch.nn.ModuleList) and len(module) == count:
            return module
    return None


def fingerprint(model: Any) -> str:
    """Hash of the configuration and of a few numbers out of every weight."""
    config = model.config.to_dict()
    for volatile in ("_name_or_path", "transformers_version", "dtype", "torch_dtype"):
        config.pop(volatile, None)
    digest = hashlib.sha256(json.dumps(config, sort_keys=True, default=str).encode())
    samples = []
    for name, weight in model.named_parameters():
        digest.update(f"{name} {tuple(weight.shape)}".encode())
        flat = weight.detach().reshape(-1)
        samples.append(flat[:: max(1, flat.numel() // 16)][:16].to("cpu", torch.float32))
    digest.update(torch.cat(samples).numpy().tobytes())
    return digest.hexdigest()[:16]
