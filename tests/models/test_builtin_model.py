"""The built-in model, from its GGUF file, is what transformers makes of the same file."""

# ruff: noqa: RUF001 (full-width punctuation is part of the texts)

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from tokenizers import pre_tokenizers

from slipstream.models.base import FeatureRequest, Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel

pytestmark = pytest.mark.model

TEXTS = [
    "",
    "Hello, world!",
    "  leading and trailing  ",
    "tabs\tand\nnew\n\n\nlines\r\n and  runs   of    spaces     here",
    "def f(x):\n    return {k: v**2 for k, v in x.items() if k != 'a'}  # squares\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * 3.14159e-10; }",
    "In 2024 there were 8,045,311,447 people; 50% of 1234567890 is 617283945.",
    "phone 555-0199, hex 0xDEADBEEF, v1.2.3, 1/2 and 3/4",
    "naïve façade Ünïcödé Ωμέγα Привет שלום नमस्ते ไทย",
    "漢字かな交じり文。你好，世界！안녕하세요 세계",
    "😀 👩‍👩‍👧‍👦 🇫🇷 👍🏽 ❤️ e\u0301 \u200b\u00a0\u3000\ufeff",
    "it's we're they'll I'd I'm you've IT'S DON'T rock'n'roll",
    "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n",
    "a<|endoftext|>b <|im_end|> <repo_name>x<file_sep>",
    "<|im_star|> <| im_end |> |> <|",
    "https://example.org/path?q=a%20b&c=d#frag user@example.com",
    "\x00\x01\x7f control \ud7ff \ue000 \ufffd",
    "MixedCASEwords and ALLCAPS, snake_case camelCase kebab-case",
    " \n \n\t \t\n  ",
    "ééééé" * 20,
]

CHATS = [
    [{"role": "user", "content": "What is the capital of France?"}],
    [
        {"role": "system", "content": "Answer in one word."},
        {"role": "user", "content": "2+2?\n"},
        {"role": "assistant", "content": "4"},
        {"role": "user", "content": "And <|im_end|> 漢字 😀?"},
    ],
    [{"role": "user", "content": ""}],
]


@pytest.mark.parametrize("text", TEXTS)
def test_token_ids_are_those_of_transformers(
    text: str, builtin_checkpoint: Checkpoint, transformers_tokenizer: Any
) -> None:
    ours = builtin_checkpoint.tokenizer
    ids = ours.encode(text)
    assert ids == transformers_tokenizer(text)["input_ids"]
    assert ours.encode(text, special=False) == ids, "the model adds nothing around a text"
    assert ours.decode(ids, skip_special=False) == text


def test_digits_after_spaces_are_cut_as_the_model_was_trained(
    builtin_checkpoint: Checkpoint, transformers_tokenizer: Any
) -> None:
    """transformers ignores ``tokenizer.ggml.pre = smollm``; corrected, it agrees here as well."""
    published = transformers_tokenizer.backend_tokenizer
    as_read = published.pre_tokenizer
    texts = ["a  12", "\n   42\n", "x =  3.5;\ty = \t7", "1 000  000", "x²+y³, ½ and ٣"]
    try:
        published.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        for text in TEXTS + texts:
            assert builtin_checkpoint.tokenizer.encode(text) == published.encode(text).ids
    finally:
        published.pre_tokenizer = as_read


@pytest.mark.parametrize("messages", CHATS)
@pytest.mark.parametrize("prompted", [True, False])
def test_rendered_chats_are_those_of_transformers(
    messages: list[dict[str, str]],
    prompted: bool,
    builtin_checkpoint: Checkpoint,
    transformers_tokenizer: Any,
) -> None:
    ours = builtin_checkpoint.tokenizer
    options: dict[str, Any] = {"add_generation_prompt": prompted}
    theirs = transformers_tokenizer.apply_chat_template(messages, tokenize=False, **options)
    assert ours.render(messages, **options) == theirs
    ids = transformers_tokenizer.apply_chat_template(messages, return_dict=True, **options)
    assert ours.encode_chat(messages, **options) == ids["input_ids"]


def test_special_tokens_and_context_are_those_of_the_file(builtin_checkpoint: Checkpoint) -> None:
    tokenizer = builtin_checkpoint.tokenizer
    assert tokenizer.vocab_size == builtin_checkpoint.config.vocab_size == 49152
    assert [tokenizer.token(id) for id in tokenizer.eos_token_ids] == ["<|im_end|>"]
    assert builtin_checkpoint.config.max_context == 8192


def test_logits_and_features_are_those_of_transformers(
    builtin_checkpoint: Checkpoint, transformers_model: Any
) -> None:
    import torch

    model = ReferenceModel(builtin_checkpoint)
    tokens = builtin_checkpoint.tokenizer.encode_chat(CHATS[1])
    sequence = model.open()
    output = model.forward(Rows.chain(sequence, tokens), FeatureRequest(last=True, layers=(0, 17)))
    with torch.no_grad():
        theirs = transformers_model(torch.tensor([tokens]), output_hidden_states=True)
    logits = theirs.logits[0].numpy()
    np.testing.assert_allclose(output.logits, logits, atol=2e-3, rtol=0)
    np.testing.assert_array_equal(output.logits.argmax(-1), logits.argmax(-1))
    states = [state[0].numpy() for state in theirs.hidden_states]
    np.testing.assert_allclose(output.layer_features[0], states[1], atol=1e-3, rtol=1e-3)
    np.testing.assert_allclose(output.layer_features[17], states[18], atol=2e-2, rtol=1e-3)
    np.testing.assert_allclose(output.features, states[-1], atol=1e-3, rtol=1e-3)
