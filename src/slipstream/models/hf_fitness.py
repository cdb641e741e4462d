"""Whether a Hugging Face model can be a target: what its configuration rules out, and a live probe.

Refuses with the reason. The probe runs a small tree and compares every row with the model's own
forward pass over that branch alone; a model that ignores 4-D masks or position ids, applies its
head in a way of its own, or keeps state outside the cache, is found out here and not in its output.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from slipstream.errors import UnsupportedModel
from slipstream.models.base import Rows, TargetModel

_FULL: Final = "full_attention"
_WINDOWED: Final = {
    "sliding_attention": "sliding_window",
    "chunked_attention": "attention_chunk_size",
}
_TOLERANCE: Final = {torch.float32: 1e-3, torch.float64: 1e-3, torch.float16: 3e-2}
_LOW_PRECISION_TOLERANCE: Final = 0.15


def context_limit(model: Any) -> int:
    """Longest sequence that the model computes as one full-attention pass would.

    A sliding window counts as the end of the context: up to there it changes nothing. So does the
    length at which ``longrope`` switches its frequencies for all tokens at once.

    Raises:
        UnsupportedModel: the configuration rules the model out; says why.
    """
    config = model.config.get_text_config()
    name = type(model).__name__
    if model.config.is_encoder_decoder:
        raise UnsupportedModel(f"{name} is an encoder-decoder; a target must be decoder-only")
    if getattr(model, "_is_stateful", False):
        raise UnsupportedModel(f"{name} is recurrent: its state can't drop rejected tokens")
    if config._attn_implementation not in ("sdpa", "eager"):
        raise UnsupportedModel(
            f"attention {config._attn_implementation!r} can't mask trees; "
            "load the model with attn_implementation='sdpa' or 'eager'"
        )
    if not isinstance(model.get_output_embeddings(), torch.nn.Module):
        raise UnsupportedModel(f"{name} has no language-model head")

    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int):
        raise UnsupportedModel(f"the configuration of {name} states no context length")
    types = getattr(config, "layer_types", None)
    if types is None:
        types = [kind for kind, field in _WINDOWED.items() if getattr(config, field, None)]
    for kind in set(types) - {_FULL}:
        if kind not in _WINDOWED:
            raise UnsupportedModel(f"{name} has {kind!r} layers, which can't drop rejected tokens")
        window = getattr(config, _WINDOWED[kind], None)
        limit = min(limit, window or limit)
    rope = getattr(config, "rope_parameters", None) or {}
    if rope.get("rope_type") == "longrope":
        original = rope.get("original_max_position_embeddings") or getattr(
            config, "original_max_position_embeddings", None
        )
        limit = min(limit, original or limit)
    return limit


def probe(model: TargetModel, alone: Callable[[list[list[int]]], torch.Tensor], dtype: Any) -> None:
    """Run a small tree and compare it with its branches alone.

    Args:
        model: the wrapped model, with no sequence open.
        alone: (branches, T) tokens -> (branches, T, V) logits by the model's own forward pass.
        dtype: of the weights; decides how close is equal.

    Raises:
        UnsupportedModel: the rows differ, or the model can't be run like this at all.
    """
    vocab = model.info.vocab_size
    a, b, c, d, e, f, other = (i * vocab // 8 for i in range(7))
    try:
        expected = alone([[a, b, c, d, f], [a, b, c, e, f]])
        first = _tree(model, [a, b], [c, d, e, f])
        second = _tree(model, [a, b], [c, d, other, f])
    except UnsupportedModel:
        raise
    except Exception as error:  # foreign code, in any of the ways it may fail
        raise UnsupportedModel(
            f"{model.info.name} can't be run with a custom cache, mask and positions: "
            f"{type(error).__name__}: {error}"
        ) from error
    if first.shape[-1] != vocab or expected.shape[-1] != vocab:
        raise UnsupportedModel(
            f"{model.info.name} states {vocab} tokens, but computes {first.shape[-1]} logits"
        )
    branches = torch.stack([expected[0, 2], expected[0, 3], expected[1, 3], expected[0, 4]])
    scale = float((branches - branches.mean(-1, keepdim=True)).abs().max())
    tolerance = _TOLERANCE.get(dtype, _LOW_PRECISION_TOLERANCE) * scale
    # Written so that NaN fails.
    if not float((first - branches).abs().max()) <= tolerance:
        raise UnsupportedModel(
            f"{model.info.name} gives a branch of a tree other logits than the branch alone: "
            "it ignores 4-D masks or position ids, or keeps state outside its cache"
        )
    # The same pass with another sibling: rows that don't see it must not notice, in any precision.
    unrelated = (first - second)[[0, 1, 3]].abs().max()
    if not float(unrelated) <= tolerance / 10:
        raise UnsupportedModel(f"{model.info.name} lets branches of a tree see each other")


def _tree(model: TargetModel, prefix: list[int], tokens: list[int]) -> torch.Tensor:
    """Logits of the tree 0 -> {1 -> 3, 2} behind a prefix, rows 2 and 3 in a second pass."""
    sequence = model.open()
    try:
        model.prefill(sequence, prefix)
        parents = np.array([-1, 0, 0, 1])
        logits = []
        for part in (slice(0, 2), slice(2, 4)):
            logits.append(
                model.forward(
                    Rows(np.full(2, sequence), np.array(tokens)[part], parents[part])
                ).logits
            )
        return torch.cat(logits)
    finally:
        model.close(sequence)
