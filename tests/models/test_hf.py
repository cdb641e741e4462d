"""Any causal LM of transformers, as a target: what it computes is what it computes alone.

The models are tiny and random, with weights large enough that every token of the context matters.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tokenizers
import torch
import transformers

from slipstream.errors import (
    InvalidInput,
    ModelError,
    PromptTooLong,
    SlipstreamError,
    UnsupportedModel,
)
from slipstream.models import hf
from slipstream.models.base import PREFIX, FeatureRequest, Rows, TargetModel
from slipstream.models.hf import HuggingFaceModel
from slipstream.models.hf_tokenizer import tokenizer_from_transformers

V = 61
CONTEXT = 64
LLAMA = {
    "vocab_size": V,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": CONTEXT,
    "initializer_range": 0.3,
    "bos_token_id": 0,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def llama(**options: Any) -> Any:
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**LLAMA, **options}))


def qwen2() -> Any:
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA))


def gemma2() -> Any:
    """Soft caps on logits and attention, scaled embeddings, a window in every other layer."""
    config = transformers.Gemma2Config(
        **LLAMA, head_dim=8, sliding_window=40, final_logit_softcapping=3.0
    )
    return transformers.Gemma2ForCausalLM(config)


def gpt2() -> Any:
    """Learned positions, biases, another module tree."""
    config = transformers.GPT2Config(
        vocab_size=V,
        n_embd=24,
        n_layer=3,
        n_head=4,
        n_positions=CONTEXT,
        initializer_range=0.3,
        bos_token_id=0,
        eos_token_id=1,
    )
    return transformers.GPT2LMHeadModel(config)


FAMILIES = {"llama": llama, "qwen2": qwen2, "gemma2": gemma2, "gpt2": gpt2}


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Models this small spend their time waiting for other threads."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module", params=FAMILIES)
def model(request: pytest.FixtureRequest) -> HuggingFaceModel:
    torch.manual_seed(3)
    return HuggingFaceModel(FAMILIES[request.param]())


@pytest.fixture
def plain_llama() -> Any:
    torch.manual_seed(3)
    return llama().eval()


def raw(model: HuggingFaceModel) -> Any:
    return model._model


def alone(model: HuggingFaceModel, tokens: list[int]) -> torch.Tensor:
    """(T, V) logits of transformers' own pass."""
    with torch.no_grad():
        logits: torch.Tensor = raw(model)(input_ids=torch.tensor([tokens])).logits[0]
    return logits


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert actual.dtype == torch.float32
    torch.testing.assert_close(actual, expected.float(), rtol=1e-3, atol=1e-4)


def rows_of(*parts: tuple[int, list[int], list[int]]) -> Rows:
    """Rows from (sequence, tokens, parents) each."""
    return Rows(
        sequences=np.concatenate([np.full(len(t), s, np.int64) for s, t, _ in parts]),
        tokens=np.concatenate([np.array(t, np.int64) for _, t, _ in parts]),
        parents=np.concatenate([np.array(p, np.int64) for _, _, p in parts]),
    )


def test_it_is_a_target_model(model: HuggingFaceModel) -> None:
    assert isinstance(model, TargetModel)
    assert (model.info.vocab_size, model.info.num_layers) == (V, 3)
    assert not model.capabilities.bit_exact


def test_every_branch_of_a_tree_is_computed_as_if_alone(model: HuggingFaceModel) -> None:
    prefix = [2, 30, 4, 50, 6]
    sequence = model.open()
    model.prefill(sequence, prefix)
    tokens = [7, 8, 9, 10, 11, 12, 13]
    parents = [PREFIX, 0, 0, 1, 2, 2, 4]
    first = model.forward(rows_of((sequence, tokens[:4], parents[:4]))).logits
    second = model.forward(rows_of((sequence, tokens[4:], parents[4:]))).logits
    for row, logits_V in enumerate(torch.cat([first, second])):
        branch, node = [], row
        while node != PREFIX:
            branch.insert(0, tokens[node])
            node = parents[node]
        assert_close(logits_V, alone(model, prefix + branch)[-1])
    model.close(sequence)


def test_after_any_commits_the_cache_is_a_fresh_prefill(model: HuggingFaceModel) -> None:
    rng = random.Random(5)
    text = [rng.randrange(V) for _ in range(4)]
    sequence = model.open()
    model.prefill(sequence, text)
    for _ in range(12):
        count = rng.randint(1, 5)
        tokens = [rng.randrange(V) for _ in range(count)]
        parents = [rng.randint(PREFIX, node - 1) for node in range(count)]
        model.forward(rows_of((sequence, tokens, parents)))
        path, node = [], rng.randint(PREFIX, count - 1)
        while node != PREFIX:
            path.insert(0, node)
            node = parents[node]
        model.commit(sequence, path)
        text += [tokens[node] for node in path]
        if len(text) > 20:
            text = text[:9]
            model.truncate(sequence, 9)
        assert model.length(sequence) == len(text)
        probe = rng.randrange(V)
        logits = model.forward(Rows.chain(sequence, [probe])).logits
        model.commit(sequence, [])
        assert_close(logits[0], alone(model, [*text, probe])[-1])
    model.close(sequence)


def test_sequences_that_share_passes_come_and_go_without_a_trace(model: HuggingFaceModel) -> None:
    rng = random.Random(6)
    texts: dict[int, list[int]] = {}
    for step in range(14):
        if len(texts) < 2 or (step % 3 == 0 and len(texts) < 5):
            sequence = model.open()
            texts[sequence] = [rng.randrange(V) for _ in range(rng.randint(1, 9))]
            model.prefill(sequence, texts[sequence])
        elif step % 4 == 3:
            gone = rng.choice(list(texts))
            model.close(gone)
            del texts[gone]
        # Some of the sequences, in any order, with ragged numbers of rows.
        chosen = rng.sample(list(texts), rng.randint(1, len(texts)))
        parts = [(s, [rng.randrange(V) for _ in range(rng.randint(1, 3))]) for s in chosen]
        rows = rows_of(*((s, tokens, list(range(-1, len(tokens) - 1))) for s, tokens in parts))
        logits = list(model.forward(rows).logits)
        for sequence, tokens in parts:
            expected = alone(model, texts[sequence] + tokens)[len(texts[sequence]) :]
            for row in expected:
                assert_close(logits.pop(0), row)
            kept = rng.randint(0, len(tokens))
            model.commit(sequence, range(kept))
            texts[sequence] += tokens[:kept]
            if len(texts[sequence]) > 12:
                texts[sequence] = texts[sequence][:7]
                model.truncate(sequence, 7)
    for sequence in texts:
        model.close(sequence)


def test_rows_of_one_pass_may_interleave_sequences(model: HuggingFaceModel) -> None:
    a, b = model.open(), model.open()
    rows = Rows(
        sequences=np.array([b, a, b, a]),
        tokens=np.array([5, 6, 7, 8]),
        parents=np.array([PREFIX, PREFIX, 0, 0]),
        wants_logits=np.array([False, True, True, True]),
    )
    logits = model.forward(rows).logits
    assert logits.shape == (3, V)
    assert_close(logits[[0, 2]], alone(model, [6, 8]))
    assert_close(logits[1], alone(model, [5, 7])[1])
    model.close(a)
    model.close(b)


def test_features_are_the_hidden_states_of_transformers(model: HuggingFaceModel) -> None:
    tokens = [3, 14, 15, 9, 26]
    with torch.no_grad():
        output = raw(model)(input_ids=torch.tensor([tokens]), output_hidden_states=True)
    embedded, after_0, after_1, normed = (states[0] for states in output.hidden_states)
    assert embedded.shape == after_0.shape
    request = FeatureRequest(last=True, layers=(0, 1, 2))
    sequence, prefilled = model.open(), model.open()
    forward = model.forward(Rows.chain(sequence, tokens), request)
    prefill = model.prefill(prefilled, tokens, request)
    for result in (forward, prefill):
        assert_close(result.features, normed)
        assert_close(result.layer_features[0], after_0)
        assert_close(result.layer_features[1], after_1)
        decoder = raw(model).base_model
        final_norm = decoder.norm if hasattr(decoder, "norm") else decoder.ln_f
        assert_close(final_norm(result.layer_features[2]).detach(), normed)
    assert prefill.logits.shape == (0, V)
    model.close(sequence)
    model.close(prefilled)


def test_a_prompt_in_chunks_is_the_prompt_in_one_piece(
    model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = [(7 * i) % V for i in range(23)]
    whole, chunked = model.open(), model.open()
    request = FeatureRequest(last=True)
    one = model.prefill(whole, tokens, request)
    monkeypatch.setattr(hf, "_PREFILL_CHUNK", 4)
    many = model.prefill(chunked, tokens, request)
    assert_close(many.features, one.features)
    assert model.length(chunked) == model.length(whole) == 23
    logits = model.forward(rows_of((whole, [5], [PREFIX]), (chunked, [5], [PREFIX]))).logits
    assert_close(logits[0], logits[1])
    nothing = model.prefill(chunked, [], request)
    assert nothing.features is not None
    assert nothing.features.shape == (0, 24)
    model.close(whole)
    model.close(chunked)


def test_vectors_stand_in_for_embeddings(plain_llama: Any) -> None:
    model = HuggingFaceModel(plain_llama)
    tokens = [4, 5, 6]
    vectors = plain_llama.get_input_embeddings()(torch.tensor(tokens)).detach()
    sequence = model.open()
    chain = Rows.chain(sequence, tokens)
    rows = Rows(chain.sequences, chain.tokens, chain.parents, vectors=vectors.numpy())
    assert_close(model.forward(rows).logits, alone(model, tokens))
    with pytest.raises(InvalidInput, match=r"vectors must have shape \(3, 24\)"):
        model.forward(Rows(chain.sequences, chain.tokens, chain.parents, vectors=vectors[:2]))


def test_verified_greedy_text_is_that_of_generate(model: HuggingFaceModel) -> None:
    prompt = [11, 22, 33]
    expected = (
        raw(model)
        .generate(
            torch.tensor([prompt]),
            attention_mask=torch.ones(1, len(prompt), dtype=torch.long),
            do_sample=False,
            max_new_tokens=25,
            min_new_tokens=25,
            pad_token_id=0,
        )[0]
        .tolist()
    )
    rng = random.Random(8)
    text = list(prompt)
    sequence = model.open()
    model.prefill(sequence, prompt[:-1])
    while len(text) < len(expected):
        # A draft that is right for a while, beside a wrong branch.
        right = expected[len(text) : len(text) + 3]
        wrong = [rng.randrange(V) for _ in range(2)]
        first = 1 + len(right)
        tokens = [text[-1], *right, *wrong]
        parents = [PREFIX, *range(len(right)), 0, first]
        logits = model.forward(rows_of((sequence, tokens, parents))).logits
        logits[:, 1] = -torch.inf  # min_new_tokens holds the end token back
        path = [0]
        while True:
            best = int(logits[path[-1]].argmax())
            text.append(best)
            children = [i for i, p in enumerate(parents) if p == path[-1] and tokens[i] == best]
            if not children:
                break
            path.append(children[0])
        model.commit(sequence, path)
    assert text[: len(expected)] == expected
    model.close(sequence)


def test_a_sliding_window_ends_the_context_and_nothing_goes_past_it(
    model: HuggingFaceModel,
) -> None:
    sliding = "Gemma2" in type(raw(model)).__name__
    assert model.info.max_context == (40 if sliding else CONTEXT)
    sequence = model.open()
    model.prefill(sequence, [2] * (model.info.max_context - 1))
    model.forward(Rows.chain(sequence, [2]))
    model.commit(sequence, [0])
    with pytest.raises(PromptTooLong):
        model.forward(Rows.chain(sequence, [2]))
    model.close(sequence)


def test_a_bad_prompt_is_refused_as_a_whole(
    model: HuggingFaceModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hf, "_PREFILL_CHUNK", 2)
    sequence = model.open()
    model.prefill(sequence, [4, 5, 6])
    for bad in ([1, 2, 3, V], [1, 2, 3, -1], [1] * CONTEXT):
        with pytest.raises(InvalidInput):
            model.prefill(sequence, bad)
        assert model.length(sequence) == 3
    assert_close(model.forward(Rows.chain(sequence, [7])).logits[0], alone(model, [4, 5, 6, 7])[-1])
    with pytest.raises(InvalidInput, match="no layer 3"):
        model.forward(Rows.chain(sequence, [7]), FeatureRequest(layers=(3,)))
    model.close(sequence)


def test_not_even_nan_spreads_between_sequences(plain_llama: Any) -> None:
    model = HuggingFaceModel(plain_llama)
    healthy, sick = model.open(), model.open()
    poison = np.full((2, 24), np.nan, np.float32)
    chain = Rows.chain(sick, [0, 0])
    bad = Rows(chain.sequences, chain.tokens, chain.parents, vectors=poison)
    assert model.forward(bad).logits.isnan().all()
    model.commit(sick, [0, 1])
    both = model.forward(rows_of((sick, [3], [PREFIX]), (healthy, [3], [PREFIX]))).logits
    assert both[0].isnan().all()
    assert_close(both[1], alone(model, [3])[0])
    model.commit(healthy, [0])
    model.close(sick)
    heir = model.open()  # takes over the place of the sick one
    logits = model.forward(rows_of((healthy, [4], [PREFIX]), (heir, [5], [PREFIX]))).logits
    assert_close(logits[0], alone(model, [3, 4])[1])
    assert_close(logits[1], alone(model, [5])[0])


def test_the_wrapped_model_is_left_as_it_was(plain_llama: Any) -> None:
    tokens = torch.tensor([[1, 2, 3]])
    before = plain_llama(tokens).logits
    model = HuggingFaceModel(plain_llama)
    model.forward(Rows.chain(model.open(), [1, 2]), FeatureRequest(last=True, layers=(1,)))
    assert torch.equal(plain_llama(tokens).logits, before)
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in plain_llama.modules())


def test_half_precision_gives_float32_logits(plain_llama: Any) -> None:
    model = HuggingFaceModel(plain_llama.to(torch.bfloat16))
    output = model.forward(Rows.chain(model.open(), [1, 2]), FeatureRequest(last=True, layers=(1,)))
    assert output.logits.dtype == torch.float32
    assert output.features is not None
    assert output.features.dtype == output.layer_features[1].dtype == torch.float32


def test_a_fingerprint_follows_weights_and_shape(plain_llama: Any) -> None:
    first = HuggingFaceModel(plain_llama).info.fingerprint
    assert HuggingFaceModel(plain_llama).info.fingerprint == first
    with torch.no_grad():
        plain_llama.model.norm.weight[0] += 1
    assert HuggingFaceModel(plain_llama).info.fingerprint != first


class BlindToMasks(transformers.LlamaForCausalLM):
    def forward(self, attention_mask: Any = None, **kwargs: Any) -> Any:
        if attention_mask is not None:
            attention_mask = torch.zeros_like(attention_mask)
        return super().forward(attention_mask=attention_mask, **kwargs)


class BlindToPositions(transformers.LlamaForCausalLM):
    def forward(self, position_ids: Any = None, **kwargs: Any) -> Any:
        return super().forward(**kwargs)


class HeadOfItsOwn(transformers.LlamaForCausalLM):
    def forward(self, **kwargs: Any) -> Any:
        output = super().forward(output_hidden_states=True, **kwargs)
        output.logits = output.hidden_states[-1] @ self.lm_head.weight.T
        return output

    def get_output_embeddings(self) -> Any:
        return torch.nn.Linear(1, 1)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: BlindToMasks(transformers.LlamaConfig(**LLAMA)), "ignores 4-D masks"),
        (lambda: BlindToPositions(transformers.LlamaConfig(**LLAMA)), "or position ids"),
        (lambda: HeadOfItsOwn(transformers.LlamaConfig(**LLAMA)), "call its language-model head"),
        (
            lambda: transformers.MambaForCausalLM(
                transformers.MambaConfig(vocab_size=V, hidden_size=16, num_hidden_layers=1)
            ),
            "recurrent",
        ),
        (
            lambda: transformers.T5ForConditionalGeneration(
                transformers.T5Config(vocab_size=V, d_model=16, d_kv=4, d_ff=16, num_layers=1)
            ),
            "encoder-decoder",
        ),
        (lambda: llama().model, "no language-model head"),
        (lambda: llama(attn_implementation="flex_attention"), "can't mask trees"),
    ],
)
def test_what_cannot_work_is_refused_with_the_reason(make: Callable[[], Any], reason: str) -> None:
    torch.manual_seed(0)
    with pytest.raises(UnsupportedModel, match=reason):
        HuggingFaceModel(make())


def test_a_directory_loads_in_the_dtype_that_is_asked_for(plain_llama: Any, tmp_path: Path) -> None:
    plain_llama.to(torch.bfloat16).save_pretrained(tmp_path)
    for dtype, expected in [(None, torch.bfloat16), ("float32", torch.float32)]:
        model = HuggingFaceModel.from_pretrained(tmp_path, dtype=dtype, device="cpu")
        assert raw(model).dtype == expected
        assert model.info.name == str(tmp_path)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"dtype": "float3"}, InvalidInput, "dtype must be"),
        ({"device": "abacus"}, InvalidInput, "abacus"),
        ({}, ModelError, "can't load"),
    ],
)
def test_what_cannot_be_loaded_says_so(
    options: dict[str, Any], error: type[SlipstreamError], message: str, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message):
        HuggingFaceModel.from_pretrained(tmp_path, **options)


@pytest.mark.parametrize("thing", [5, None, torch.nn.Linear(2, 2)])
def test_what_is_no_model_is_refused(thing: Any) -> None:
    with pytest.raises(InvalidInput, match="a model is a name"):
        HuggingFaceModel(thing)


def test_a_fast_tokenizer_becomes_ours_and_a_slow_one_is_refused() -> None:
    backend = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"?": 0, "</s>": 1, "hi": 2, "you": 3}, unk_token="?")
    )
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    theirs = transformers.PreTrainedTokenizerFast(
        tokenizer_object=backend,
        eos_token="</s>",
        chat_template="{% for m in messages %}{{ m.content }}{{ eos_token }}{% endfor %}",
    )
    ours = tokenizer_from_transformers(theirs)
    messages = [{"role": "user", "content": "hi you"}]
    assert ours.encode("hi you") == theirs.encode("hi you") == [2, 3]
    assert ours.eos_token_ids == {1}
    assert ours.bos_token_id is None
    assert ours.render(messages) == theirs.apply_chat_template(messages, tokenize=False)
    with pytest.raises(UnsupportedModel, match="no fast tokenizer"):
        tokenizer_from_transformers(object())


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("family", FAMILIES)
def test_on_a_gpu_it_computes_what_it_computes_on_the_cpu(family: str) -> None:
    torch.manual_seed(3)
    on_cpu = HuggingFaceModel(FAMILIES[family]())
    torch.manual_seed(3)
    on_gpu = HuggingFaceModel(FAMILIES[family]().to("cuda"))
    outputs = []
    for model in (on_cpu, on_gpu):
        a, b = model.open(), model.open()
        model.prefill(a, [1, 2, 3])
        rows = rows_of((a, [4, 5, 6], [PREFIX, 0, 0]), (b, [7], [PREFIX]))
        model.forward(rows)
        model.commit(a, [0, 2])
        model.commit(b, [0])
        model.close(b)
        output = model.forward(Rows.chain(a, [8, 9]), FeatureRequest(last=True, layers=(1,)))
        assert output.logits.device.type == model.device.type
        outputs.append([output.logits, output.features, output.layer_features[1]])
    for cpu, gpu in zip(*outputs, strict=True):
        torch.testing.assert_close(gpu.cpu(), cpu, rtol=1e-2, atol=1e-2)
