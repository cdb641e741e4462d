"""Any Hugging Face causal LM as a target, on any torch device.

All rows of a call go through the model's own ``forward`` once, as a padded batch with one line a
sequence; a 4-D mask and position ids say who sees whom, so trees need nothing from the model.
Hooks, in place only during a pass, pick the rows that want logits just before the LM head, so
whatever the model does around it (soft caps, scales) happens as written, and read off features.

Knows no architecture by name. Promises: float32 logits; a model that can't work this way is refused
on construction, with the reason. Not bit-exact: torch picks kernels by shape.
Shape letters: R rows, L rows that want logits, B sequences, T rows of the longest sequence, S slots
shown, V vocabulary, H hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
import transformers

from slipstream.errors import InvalidInput, Unsupported, UnsupportedModel
from slipstream.models.base import (
    NO_FEATURES,
    Capabilities,
    FeatureRequest,
    ForwardOutput,
    IntArray,
    ModelInfo,
    Rows,
)
from slipstream.models.hf_anatomy import blocks, cache_argument, fingerprint
from slipstream.models.hf_cache import SlotCache
from slipstream.models.hf_fitness import context_limit, probe
from slipstream.models.hf_head import finish_of, linear
from slipstream.models.hf_load import load_pretrained
from slipstream.models.hf_slots import Slots
from slipstream.models.hf_taps import HEAD, taps
from slipstream.models.ledger import Ledger
from slipstream.types import Array

_PREFILL_CHUNK: Final = 512
"""Prompt tokens per pass; bounds the mask and the activations."""


class HuggingFaceModel:
    """A causal LM of transformers behind :class:`slipstream.models.base.TargetModel`.

    Args:
        model: a loaded model with a language-model head; it is put into evaluation mode.
        name: for people; by default what it was loaded from.

    Raises:
        UnsupportedModel: it can't be a target; says why.
    """

    def __init__(self, model: transformers.PreTrainedModel, *, name: str | None = None) -> None:
        if not hasattr(getattr(model, "config", None), "get_text_config"):
            raise InvalidInput(f"a model is a name, a target or a loaded model, not {model!r:.80}")
        config = model.config.get_text_config()
        max_context = context_limit(model)
        self._model = model.eval()
        self._head = model.get_output_embeddings()
        self._blocks = blocks(model, config.num_hidden_layers)
        self._info = ModelInfo(
            name=name or model.config.name_or_path or type(model).__name__,
            vocab_size=config.vocab_size,
            hidden_size=config.hidden_size,
            num_layers=config.num_hidden_layers,
            max_context=max_context,
            fingerprint=fingerprint(model),
        )
        self._cache_argument = cache_argument(model)
        self._ledger = Ledger(vocab_size=self._info.vocab_size, max_context=self._info.max_context)
        self._slots = Slots()
        self._cache = SlotCache()
        probe(self, self._alone, model.dtype)

    @classmethod
    def from_pretrained(
        cls,
        path_or_id: str | Path,
        *,
        device: str | torch.device | None = None,
        dtype: str | torch.dtype | None = None,
        gguf_file: str | None = None,
    ) -> HuggingFaceModel:
        """Load a directory or a hub id.

        Args:
            device: torch device; None takes CUDA where there is one, else the CPU.
            dtype: of the weights, such as ``float32``; None as the files have them.
            gguf_file: a GGUF file in that place, de-quantised on load.

        Raises:
            InvalidInput: no such device or dtype.
            ModelError: transformers can't load it; or see the constructor.
        """
        model = load_pretrained(path_or_id, device=device, dtype=dtype, gguf_file=gguf_file)
        return cls(model, name=str(Path(path_or_id, gguf_file) if gguf_file else path_or_id))

    @property
    def info(self) -> ModelInfo:
        return self._info

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(trees=True, features=True, bit_exact=False)

    @property
    def device(self) -> torch.device:
        """Where logits and features are."""
        device: torch.device = self._model.device
        return device

    def open(self) -> int:
        sequence = self._ledger.open()
        self._slots.open(sequence)
        return sequence

    def close(self, sequence: int) -> None:
        self._ledger.close(sequence)
        self._cache.vacate(*self._slots.close(sequence))

    def length(self, sequence: int) -> int:
        return self._ledger.committed(sequence)

    def prefill(
        self, sequence: int, tokens: Sequence[int], features: FeatureRequest = NO_FEATURES
    ) -> ForwardOutput:
        before = self.length(sequence)
        self.truncate(sequence, before)
        parts = []
        try:
            for start in range(0, len(tokens), _PREFILL_CHUNK):
                chunk = tokens[start : start + _PREFILL_CHUNK]
                parts.append(self.forward(Rows.chain(sequence, chunk, logits=False), features))
                self.commit(sequence, range(len(chunk)))
        except BaseException:
            self.truncate(sequence, before)  # a bad prompt is refused as a whole
            raise
        return self._joined(parts, features)

    def forward(self, rows: Rows, features: FeatureRequest = NO_FEATURES) -> ForwardOutput:
        self._check(rows, features)
        placement = self._ledger.place(rows)
        layout = self._slots.place(rows, placement, self._ledger)
        self._cache.start(layout, self.device)
        at = (self._tensor(layout.batch), self._tensor(layout.column))
        wanted = np.ones(len(rows), np.bool_) if rows.wants_logits is None else rows.wants_logits
        wants = (self._tensor(layout.batch[wanted]), self._tensor(layout.column[wanted]))

        B, T, _ = layout.visible.shape
        positions = np.zeros((B, T), np.int64)
        positions[layout.batch, layout.column] = placement.positions
        visible = self._tensor(layout.visible)[:, None]
        dtype = self._model.dtype
        mask = torch.zeros(visible.shape, dtype=dtype, device=visible.device)
        mask.masked_fill_(~visible, torch.finfo(dtype).min)
        inputs: dict[str, Any] = {
            "attention_mask": mask,
            "position_ids": self._tensor(positions),
            self._cache_argument: self._cache,
            "use_cache": True,
            "return_dict": True,
        }
        if rows.vectors is None:
            tokens = np.zeros((B, T), np.int64)
            tokens[layout.batch, layout.column] = rows.tokens
            inputs["input_ids"] = self._tensor(tokens)
        else:
            vectors = torch.as_tensor(rows.vectors, dtype=dtype, device=self.device)
            inputs["inputs_embeds"] = vectors.new_zeros((B, T, vectors.shape[1]))
            inputs["inputs_embeds"][at] = vectors

        with torch.no_grad(), taps(self._head, self._blocks or [], wants, features) as seen:
            logits = self._model(**inputs).logits
        if not seen.head_called:
            raise UnsupportedModel(f"{self._info.name} doesn't call its language-model head")
        return ForwardOutput(
            logits=logits[0].float(),
            features=seen.hidden(HEAD, at) if features.last else None,
            layer_features={layer: seen.hidden(layer, at) for layer in features.layers},
        )

    def commit(self, sequence: int, path: Sequence[int]) -> None:
        self._ledger.commit(sequence, path)
        self._slots.commit(sequence, path)

    def truncate(self, sequence: int, length: int) -> None:
        self._ledger.truncate(sequence, length)
        self._slots.truncate(sequence, length)

    def embed(self, tokens: IntArray) -> torch.Tensor:
        """(R, H) float32 embeddings, for drafters that share them."""
        with torch.no_grad():
            embedded: torch.Tensor = self._model.get_input_embeddings()(self._tensor(tokens))
        return embedded.float()

    def head(self, ids: IntArray | None) -> Callable[[Array], torch.Tensor]:
        """The LM head of some tokens or all, for drafters: (R, H) features to (R, v) logits.

        Raises:
            UnsupportedModel: see :func:`slipstream.models.hf_head.finish_of`.
        """
        finish = finish_of(self._model, self._info.name)
        matrix = linear(
            self._head, None if ids is None else self._tensor(np.asarray(ids, np.int64))
        )
        return lambda features: finish(matrix(features))

    def _tensor(self, array: npt.NDArray[Any]) -> torch.Tensor:
        return torch.from_numpy(array).to(self.device, non_blocking=True)

    def _check(self, rows: Rows, features: FeatureRequest) -> None:
        for layer in features.layers:
            if not 0 <= layer < self._info.num_layers:
                raise InvalidInput(f"no layer {layer}; there are {self._info.num_layers}")
        if features.layers and self._blocks is None:
            raise Unsupported(f"can't tell the layers of {self._info.name} apart")
        width = self._info.hidden_size
        if rows.vectors is not None and tuple(rows.vectors.shape) != (len(rows), width):
            raise InvalidInput(
                f"vectors must have shape {(len(rows), width)}, not {tuple(rows.vectors.shape)}"
            )

    def _joined(self, parts: Sequence[ForwardOutput], features: FeatureRequest) -> ForwardOutput:
        """The features of consecutive passes in one piece; no logits."""

        def joined(pieces: list[Array]) -> torch.Tensor:
            empty = torch.zeros((0, self._info.hidden_size), device=self.device)
            return torch.cat(pieces) if pieces else empty

        return ForwardOutput(
            logits=torch.zeros((0, self._info.vocab_size), device=self.device),
            features=joined([part.features for part in parts]) if features.last else None,
            layer_features={
                layer: joined([part.layer_features[layer] for part in parts])
                for layer in features.layers
            },
        )

    def _alone(self, branches: list[list[int]]) -> torch.Tensor:
        """Logits (B, T, V) of the model's own pass over tokens, without any of our machinery."""
        tokens = torch.tensor(branches, device=self.device)
        with torch.no_grad():
            logits: torch.Tensor = self._model(input_ids=tokens, use_cache=False).logits
        return logits.float()
