"""The model that an engine decodes with, from a name or from objects that are loaded already.

Knows no drafter. Promises: settings that a loaded object can't follow are refused.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from slipstream.config import EngineConfig
from slipstream.errors import InvalidInput
from slipstream.models.base import TargetModel
from slipstream.models.loader import LoadedModel, load_model
from slipstream.models.tokenizer import Tokenizer


def load_target(
    model: str | Path | TargetModel | Any,
    tokenizer: Tokenizer | Any | None,
    config: EngineConfig,
    progress: Callable[[str, int, int], None] | None,
) -> LoadedModel:
    """A target and its tokenizer, from a name or from objects."""
    if isinstance(model, (str, Path)):
        if tokenizer is not None:
            raise InvalidInput("a model given by name brings its own tokenizer")
        return load_model(model, config, progress=progress)
    if tokenizer is None:
        raise InvalidInput("a loaded model needs its tokenizer: Engine(model, tokenizer=…)")
    if not isinstance(model, TargetModel):
        from slipstream.models.hf import HuggingFaceModel

        _require_no_say(config)
        model = HuggingFaceModel(model)
    if not isinstance(tokenizer, Tokenizer):
        from slipstream.models.hf_tokenizer import tokenizer_from_transformers

        tokenizer = tokenizer_from_transformers(tokenizer)
    return LoadedModel(target=model, tokenizer=tokenizer)


def _require_no_say(config: EngineConfig) -> None:
    """A Hugging Face model that comes loaded is where and how it is."""
    default = EngineConfig()
    for name, valid in (
        ("backend", ("auto", "hf")),
        ("weights", ("auto",)),
        ("activations", (default.activations,)),
        ("device", (None,)),
        ("threads", (None,)),
    ):
        if (value := getattr(config, name)) not in valid:
            raise InvalidInput(
                f"{name}={value!r} can't be applied to a model that is loaded already; "
                "give its name or path instead of the object"
            )
