"""A Llama-family model at rest: configuration, named tensors, tokenizer; nothing is computed here.

Every source (a GGUF file, a Hugging Face directory) presents the same view, so that the numpy
reference and the compiled core never ask where weights came from: Hugging Face tensor names,
matrices of shape (outputs, inputs), query and key rows in the rotate-half order of Hugging Face.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from slipstream.models.tokenizer import Tokenizer

StorageFormat: TypeAlias = Literal["f32", "f16", "bf16", "q8_0", "q4_0", "q4_1"]
"""How a tensor's numbers are stored; the quantised ones are GGUF's groups of 32."""


@dataclass(frozen=True, kw_only=True)
class RopeScaling:
    """Scaling of the rotary frequencies, as the configuration states it.

    Args:
        kind: ``linear`` divides positions by ``factor``; ``llama3`` scales long wavelengths only.
        factor: the stretch.
        low_freq_factor, high_freq_factor, original_context: of ``llama3``.
    """

    kind: Literal["linear", "llama3"]
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192


@dataclass(frozen=True, kw_only=True)
class LlamaConfig:
    """Shape of a Llama-family model: RMSNorm, rotary embedding, grouped-query attention, SwiGLU.

    Args:
        architecture: ``llama`` (also SmolLM), ``mistral``, ``qwen2`` or ``qwen3``.
        attention_bias: q, k and v projections have biases (Qwen2).
        output_bias: the attention output projection has one (Llama with ``attention_bias``).
        qk_norm: RMSNorm over each head of q and k before the rotation (Qwen3).
        tie_embeddings: the LM head is the embedding matrix.
    """

    architecture: Literal["llama", "mistral", "qwen2", "qwen3"]
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    rope_scaling: RopeScaling | None = None
    max_context: int
    tie_embeddings: bool
    attention_bias: bool = False
    output_bias: bool = False
    qk_norm: bool = False


@dataclass(frozen=True)
class StoredTensor:
    """A tensor as the file holds it.

    Args:
        format: how the numbers are stored.
        shape: logical shape, (outputs, inputs) for matrices.
        data: for f32, f16 and bf16 (as uint16) an array of ``shape``; for quantised formats
            (outputs, bytes per row) uint8, each row a whole number of blocks.
    """

    format: StorageFormat
    shape: tuple[int, ...]
    data: npt.NDArray[np.generic]


class Checkpoint(Protocol):
    """Configuration, tensors and tokenizer of one model."""

    @property
    def name(self) -> str: ...

    @property
    def config(self) -> LlamaConfig: ...

    @property
    def tokenizer(self) -> Tokenizer: ...

    @property
    def fingerprint(self) -> str:
        """Hash that changes with configuration or weights; cheap (no pass over all weights)."""
        ...

    def names(self) -> Sequence[str]:
        """Hugging Face names of all tensors; a tied LM head is not listed."""
        ...

    def stored(self, name: str) -> StoredTensor:
        """A tensor as stored, without copying where the file can be mapped.

        Raises:
            CorruptModel: missing, or of another shape than the configuration says.
        """
        ...

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The same, de-quantised to float32."""
        ...
