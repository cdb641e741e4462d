"""An engine around a Hugging Face model and tokenizer that are loaded already."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from slipstream import Engine, EngineConfig, SamplingParams
from slipstream.errors import InvalidInput
from slipstream.models.hf import HuggingFaceModel


@pytest.fixture(scope="module")
def loaded(tiny_model_dir: Path) -> tuple[Any, Any]:
    model = transformers.AutoModelForCausalLM.from_pretrained(tiny_model_dir, dtype=torch.float32)
    return model.eval(), transformers.AutoTokenizer.from_pretrained(tiny_model_dir)


def test_greedy_text_is_that_of_generate_with_and_without_a_drafter(
    loaded: tuple[Any, Any],
) -> None:
    model, tokenizer = loaded
    params = SamplingParams(max_tokens=12, ignore_eos=True)
    model.generation_config.eos_token_id = None
    prompt = [5, 9, 14, 5, 9]
    theirs = model.generate(
        torch.tensor([prompt]), max_new_tokens=12, do_sample=False, pad_token_id=0
    )[0, len(prompt) :]
    for drafter, k in (("none", 0), ("prompt-lookup", 4)):
        engine = Engine(model, tokenizer=tokenizer, drafter=drafter, k=k)
        assert list(engine.generate(prompt, params).token_ids) == theirs.tolist()


@pytest.mark.parametrize(
    "setting",
    [{"backend": "native"}, {"weights": "q4"}, {"activations": "int8"}, {"threads": 1}],
)
def test_settings_that_a_loaded_model_can_not_follow_are_refused(
    loaded: tuple[Any, Any], setting: dict[str, Any]
) -> None:
    model, tokenizer = loaded
    with pytest.raises(InvalidInput, match="can't be applied to a model that is loaded already"):
        Engine(model, tokenizer=tokenizer, config=EngineConfig(**setting))


def test_a_loaded_model_needs_its_tokenizer(loaded: tuple[Any, Any]) -> None:
    with pytest.raises(InvalidInput, match="needs its tokenizer"):
        Engine(loaded[0])


def test_loading_by_name_shows_none_of_transformers_bars(
    tiny_model_dir: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    HuggingFaceModel.from_pretrained(tiny_model_dir)
    assert capfd.readouterr().err == ""
