"""Hooks on a Hugging Face model for the length of one pass: hidden states out, wanted rows only in.

The LM head is the widest matrix of a small model, and most rows of a pass may not need it. Picking
its rows just before the head leaves the head itself, and whatever the model does to its result, as
the model has it. Shape letters: B sequences, T rows of the longest one, R rows, H hidden.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeAlias

import torch

from slipstream.models.base import FeatureRequest

Index: TypeAlias = tuple[torch.Tensor, torch.Tensor]
"""Places in a (B, T, H) tensor: which sequence, and which of its rows."""

HEAD: Final = -1
"""Key of the LM head's input among the layers' outputs."""


class Taps:
    """The hidden states that the hooks of one pass have seen."""

    def __init__(self, wants: Index) -> None:
        self._wants = wants
        self._hidden: dict[int, torch.Tensor] = {}

    @property
    def head_called(self) -> bool:
        """Whether the head ran as a module, so that its rows could be picked."""
        return HEAD in self._hidden

    def hidden(self, layer: int, at: Index) -> torch.Tensor:
        """(R, H) float32 hidden states at these places, after a layer or before the HEAD."""
        return _pick(self._hidden[layer], at).float()

    def before_head(self, _: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> Any:
        """Note the head's input, and hand on the wanted rows only, as a batch of one."""
        hidden, *rest = inputs
        self._hidden[HEAD] = hidden
        return (_pick(hidden, self._wants)[None], *rest)

    def after_block(self, layer: int, _: torch.nn.Module, __: Any, output: Any) -> None:
        """Note a block's output; some blocks return a tuple that begins with it."""
        self._hidden[layer] = output[0] if isinstance(output, tuple) else output


@contextmanager
def taps(
    head: torch.nn.Module,
    blocks: Sequence[torch.nn.Module] | torch.nn.ModuleList,
    wants: Index,
    features: FeatureRequest,
) -> Iterator[Taps]:
    """Hooks in place while the context is open; afterwards the model is as it was.

    Args:
        head: the LM head.
        blocks: transformer blocks, in order.
        wants: the rows that want logits.
        features: whose ``layers`` are noted; the head's input always is.
    """
    seen = Taps(wants)
    handles = [head.register_forward_pre_hook(seen.before_head)]
    for layer in features.layers:
        handles.append(blocks[layer].register_forward_hook(partial(seen.after_block, layer)))
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def _pick(hidden: torch.Tensor, at: Index) -> torch.Tensor:
    batch, column = at
    return hidden[batch.to(hidden.device), column.to(hidden.device)]
