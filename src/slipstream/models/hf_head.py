"""A Hugging Face model's LM head for drafters, with what the model does to the head's result.

Behind the matrix some architectures scale their logits (Cohere, Granite) or cap them softly (Gemma
2), and a drafter that shares the matrix has to do the same, or its q would be sharper or flatter
than the target's p. Which it is, the model itself says: one small pass gives the head's input and
the logits, and between the matrix's result and those stands nothing, a factor, or the soft cap that
the configuration states. Anything else is refused.

R rows, v tokens asked for, V vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import torch

from slipstream.errors import UnsupportedModel
from slipstream.models.base import NO_FEATURES
from slipstream.models.hf_taps import HEAD, taps

Finish: TypeAlias = Callable[[torch.Tensor], torch.Tensor]
"""(R, v) results of the matrix to logits, element by element."""

_TOLERANCE: Final = 0.02
"""Relative to the largest logit; bfloat16 alone makes up half of it."""

_PROBE: Final = 8


def linear(head: torch.nn.Module, ids: torch.Tensor | None = None) -> Finish:
    """The matrix and its bias, of some tokens or all: (R, H) features to (R, v) float32."""
    picked = slice(None) if ids is None else ids
    weight = head.weight.detach()[picked]
    bias = None if head.bias is None else head.bias.detach()[picked]

    def apply(features: torch.Tensor) -> torch.Tensor:
        inputs = torch.as_tensor(features, dtype=weight.dtype, device=weight.device)
        return torch.nn.functional.linear(inputs, weight, bias).float()

    return apply


def finish_of(model: Any, name: str) -> Finish:
    """What a causal LM does behind the matrix of its head.

    Raises:
        UnsupportedModel: nothing of the above; names the model.
    """
    head, config = model.get_output_embeddings(), model.config.get_text_config()
    tokens = torch.arange(_PROBE, device=model.device) * (config.vocab_size // _PROBE)
    at = (torch.zeros_like(tokens), torch.arange(_PROBE, device=model.device))
    with torch.no_grad(), taps(head, [], at, NO_FEATURES) as seen:
        logits = model(input_ids=tokens[None], use_cache=False).logits[0].float()
        found = linear(head)(seen.hidden(HEAD, at))
    return _explanation(found, logits, getattr(config, "final_logit_softcapping", None), name)


def _explanation(found: torch.Tensor, logits: torch.Tensor, cap: float | None, name: str) -> Finish:
    def as_is(x: torch.Tensor) -> torch.Tensor:
        return x

    def capped(x: torch.Tensor) -> torch.Tensor:
        assert cap is not None
        return cap * torch.tanh(x / cap)

    factor = float((found * logits).sum() / (found * found).sum())

    def scaled(x: torch.Tensor) -> torch.Tensor:
        return factor * x

    def error(finish: Finish) -> float:
        return float((finish(found) - logits).abs().max())

    allowed = _TOLERANCE * float(logits.abs().max())
    # A cap that is stated but out of reach looks like none: the closer of the two it is.
    stated = min(as_is, capped, key=error) if cap else as_is
    for finish in (stated, scaled):
        if error(finish) <= allowed:
            return finish
    raise UnsupportedModel(
        f"{name} does something behind its LM head that is neither a factor nor a stated soft cap, "
        "so a drafter can't share the head"
    )
