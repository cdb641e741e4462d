"""The head that a drafter borrows gives the target's logits, whatever comes after its matrix."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from slipstream.errors import UnsupportedModel
from slipstream.models.base import FeatureRequest, Rows
from slipstream.models.hf import HuggingFaceModel

SIZES: dict[str, Any] = {
    "vocab_size": 40,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}
TOKENS = [3, 7, 31, 12]


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def plain() -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**SIZES))


def soft_cap() -> Any:
    config = transformers.Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=3.0)
    return transformers.Gemma2ForCausalLM(config)


def cap_out_of_reach() -> Any:
    config = transformers.Gemma2Config(**SIZES, head_dim=8, final_logit_softcapping=1e6)
    return transformers.Gemma2ForCausalLM(config)


def divided() -> Any:
    config = transformers.GraniteConfig(**SIZES, logits_scaling=8.0)
    return transformers.GraniteForCausalLM(config)


def multiplied() -> Any:
    return transformers.CohereForCausalLM(transformers.CohereConfig(**SIZES, logit_scale=0.0625))


class Crooked(transformers.LlamaForCausalLM):  # type: ignore[misc]
    """Does to its logits what nobody could guess."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        output = super().forward(*args, **kwargs)
        output.logits = output.logits**2
        return output


@pytest.mark.parametrize("make", [plain, soft_cap, cap_out_of_reach, divided, multiplied])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_borrowed_head_gives_the_targets_logits(
    make: Callable[[], Any], dtype: torch.dtype
) -> None:
    torch.manual_seed(5)
    model = HuggingFaceModel(make().to(dtype))
    output = model.forward(Rows.chain(model.open(), TOKENS), FeatureRequest(last=True))
    ids = np.array([2, 5, 39])
    tolerance = (1e-4 if dtype == torch.float32 else 0.02) * float(output.logits.abs().max())
    for borrowed, expected in (
        (model.head(None), output.logits),
        (model.head(ids), output.logits[:, ids]),
    ):
        logits = borrowed(output.features)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, expected, atol=tolerance, rtol=0.0)


def test_a_head_that_cannot_be_borrowed_is_refused_by_name() -> None:
    torch.manual_seed(5)
    model = HuggingFaceModel(Crooked(transformers.LlamaConfig(**SIZES)), name="crooked")
    with pytest.raises(UnsupportedModel, match="crooked does something behind its LM head"):
        model.head(None)
