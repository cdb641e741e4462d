"""Transformer blocks in torch under Hugging Face names, with attention over several passes.

The same blocks as :class:`~slipstream.models.reference.ReferenceModel`, differentiable and over
whole sequences. A block's queries may look at the keys of earlier passes over the same positions:
that is what a drafter sees that drafts on top of its own guesses.
B sequences, T positions, H hidden, Q query heads, K key heads, D numbers per head.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import torch
from torch import Tensor, nn

from slipstream.models.checkpoint import LlamaConfig
from slipstream.models.rope import frequencies

KeysValues: TypeAlias = tuple[Tensor, Tensor]
"""(B, K, S, D) each, of S slots."""
Rotation: TypeAlias = tuple[Tensor, Tensor]
"""(B, 1, T, D) cosines and sines."""


class RMSNorm(nn.Module):  # type: ignore[misc]
    """Zhang & Sennrich 1910.07467."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        scale = torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + self.eps)
        return x * scale.to(x.dtype) * self.weight


class Attention(nn.Module):  # type: ignore[misc]
    """Grouped-query attention with rotary positions."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden, head = config.hidden_size, config.head_dim
        self.heads, self.key_heads, self.head_dim = config.num_heads, config.num_kv_heads, head
        bias = config.attention_bias
        self.q_proj = nn.Linear(hidden, config.num_heads * head, bias=bias)
        self.k_proj = nn.Linear(hidden, config.num_kv_heads * head, bias=bias)
        self.v_proj = nn.Linear(hidden, config.num_kv_heads * head, bias=bias)
        self.o_proj = nn.Linear(config.num_heads * head, hidden, bias=config.output_bias)
        if config.qk_norm:
            self.q_norm = RMSNorm(head, config.rms_norm_eps)
            self.k_norm = RMSNorm(head, config.rms_norm_eps)
        self.qk_norm = config.qk_norm

    def forward(
        self, x: Tensor, rotation: Rotation, mask: Tensor, past: Sequence[KeysValues]
    ) -> tuple[Tensor, KeysValues]:
        B, T, _ = x.shape
        q = self.q_proj(x).view(B, T, self.heads, self.head_dim)
        k = self.k_proj(x).view(B, T, self.key_heads, self.head_dim)
        v = self.v_proj(x).view(B, T, self.key_heads, self.head_dim).transpose(1, 2)
        if self.qk_norm:
            q, k = self.q_norm(q), self.k_norm(k)
        q, k = _rotate(q.transpose(1, 2), rotation), _rotate(k.transpose(1, 2), rotation)
        keys = torch.cat([*(old for old, _ in past), k], dim=2)
        values = torch.cat([*(old for _, old in past), v], dim=2)
        groups = self.heads // self.key_heads
        mixed = nn.functional.scaled_dot_product_attention(
            q,
            keys.repeat_interleave(groups, dim=1),
            values.repeat_interleave(groups, dim=1),
            attn_mask=mask,
        )
        return self.o_proj(mixed.transpose(1, 2).reshape(B, T, -1)), (k, v)


class FeedForward(nn.Module):  # type: ignore[misc]
    """SwiGLU (Shazeer 2002.05202)."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.intermediate_size
        self.gate_proj = nn.Linear(hidden, inner, bias=False)
        self.up_proj = nn.Linear(hidden, inner, bias=False)
        self.down_proj = nn.Linear(inner, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(nn.functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Block(nn.Module):  # type: ignore[misc]
    """Attention and feed-forward, each normed before and added to the stream."""

    def __init__(self, config: LlamaConfig) -> None:
        super().__init__()
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.mlp = FeedForward(config)

    def forward(
        self, x: Tensor, rotation: Rotation, mask: Tensor, past: Sequence[KeysValues]
    ) -> tuple[Tensor, KeysValues]:
        mixed, own = self.self_attn(self.input_layernorm(x), rotation, mask, past)
        x = x + mixed
        return x + self.mlp(self.post_attention_layernorm(x)), own


class Decoder(nn.Module):  # type: ignore[misc]
    """``layers`` and ``norm``, as they stand under ``model.`` in a checkpoint.

    Args:
        config: shape of the blocks.
        final_norm: whether there is a ``norm`` at the end.
    """

    def __init__(self, config: LlamaConfig, *, final_norm: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps) if final_norm else None
        rate = torch.from_numpy(frequencies(config))
        self.register_buffer("frequencies", rate, persistent=False)

    def rotation(self, positions: Tensor) -> Rotation:
        """Cosines and sines of (B, T) positions."""
        angles = positions.float().unsqueeze(-1) * self.frequencies
        angles = torch.cat([angles, angles], dim=-1).unsqueeze(1)
        return angles.cos(), angles.sin()

    def forward(
        self,
        x: Tensor,
        rotation: Rotation,
        mask: Tensor,
        past: Sequence[Sequence[KeysValues]] = (),
    ) -> tuple[Tensor, list[KeysValues]]:
        """One pass.

        Args:
            x: (B, T, H) inputs.
            mask: (B, 1, T, S) bool, what each position sees of all passes' slots, this pass last.
            past: per earlier pass, each block's keys and values.

        Returns:
            (B, T, H) outputs and this pass's keys and values by block.
        """
        own: list[KeysValues] = []
        for index, layer in enumerate(self.layers):
            x, kept = layer(x, rotation, mask, [of_pass[index] for of_pass in past])
            own.append(kept)
        return x if self.norm is None else self.norm(x), own


def causal_mask(documents: Tensor) -> Tensor:
    """(B, 1, T, T) bool: earlier positions of the same document, and oneself."""
    T = documents.shape[1]
    earlier = torch.ones(T, T, dtype=torch.bool, device=documents.device).tril()
    return (earlier & (documents[:, :, None] == documents[:, None, :])).unsqueeze(1)


def rollout_mask(documents: Tensor, usable: Tensor, passes: int) -> Tensor:
    """(B, 1, T, passes * T) bool: what position s sees when it is drafted ``passes`` tokens deep.

    The last passes - 1 positions before s were drafted as well, each in its own pass, so pass i
    shows s the single position s - (passes - i); what lies further back had true features, so
    pass 1 shows everything up to s - (passes - 1).

    Args:
        documents: (B, T) which document a position belongs to.
        usable: (B, T) bool positions that exist as keys for others.
    """
    T = documents.shape[1]
    at = torch.arange(T, device=documents.device)
    distance = at[:, None] - at[None, :]  # query - key
    same = (documents[:, :, None] == documents[:, None, :]) & usable[:, None, :]
    blocks = []
    for number in range(1, passes + 1):
        behind = passes - number
        seen = distance >= behind if number == 1 else distance == behind
        blocks.append(same & seen)
    blocks[-1] = blocks[-1] | (distance == 0)  # nobody sees nothing, padding neither
    return torch.cat(blocks, dim=-1).unsqueeze(1)


def _rotate(x: Tensor, rotation: Rotation) -> Tensor:
    cos, sin = rotation
    first, second = x.chunk(2, dim=-1)
    return x * cos.to(x.dtype) + torch.cat([-second, first], dim=-1) * sin.to(x.dtype)
