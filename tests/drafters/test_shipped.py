"""The drafters that ship for the built-in model: they fit it, they help, and they are small."""

from __future__ import annotations

from pathlib import Path

import pytest

from slipstream import Engine, SamplingParams
from slipstream.drafters import learned
from slipstream.drafters.default import default_spec
from slipstream.drafters.registry import DrafterContext

PROMPT = [{"role": "user", "content": "Explain in three sentences why the sea is salty."}]
SPECS = ("draft:smollm2-135m/draft", "medusa", "eagle", "eagle2", "composite:prompt-lookup+eagle2")


@pytest.fixture(scope="module")
def plain(builtin_model_path: Path) -> Engine:
    return Engine(builtin_model_path, drafter="none")


def test_shipped_drafters_take_less_than_forty_megabytes() -> None:
    paths = learned.shipped_drafters()
    assert set(paths) == {"smollm2-135m/draft", "smollm2-135m/eagle", "smollm2-135m/medusa"}
    size = sum(file.stat().st_size for path in paths.values() for file in path.iterdir())
    assert size < 40e6


@pytest.mark.model
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("spec", SPECS)
def test_a_shipped_drafter_saves_passes_and_leaves_the_text(
    plain: Engine, spec: str, temperature: float
) -> None:
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=48)
    engine = Engine(plain.model, tokenizer=plain.tokenizer, drafter=spec, k=3)
    expected, found = plain.generate(PROMPT, params), engine.generate(PROMPT, params)
    assert found.token_ids == expected.token_ids
    assert found.stats.acceptance_length > 1.1


@pytest.mark.model
def test_the_default_drafter_of_the_built_in_model_loads(plain: Engine) -> None:
    context = DrafterContext(target=plain.model, tokenizer=plain.tokenizer, config=plain.config)
    engine = Engine(plain.model, tokenizer=plain.tokenizer, drafter=default_spec(context))
    result = engine.generate(PROMPT, SamplingParams(max_tokens=8))
    assert result.token_ids == plain.generate(PROMPT, SamplingParams(max_tokens=8)).token_ids
