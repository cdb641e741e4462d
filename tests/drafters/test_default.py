"""Who names no drafter gets the one that the table has for the target, else prompt lookup."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.config import EngineConfig, SpeculationConfig
from slipstream.drafters import learned
from slipstream.drafters.checkpoint import add_targets
from slipstream.drafters.default import AUTO, DEFAULTS, default_spec
from slipstream.drafters.prompt_lookup import PromptLookup
from slipstream.drafters.registry import DrafterContext, make_drafter, parse_spec
from slipstream.models.base import TargetModel
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from tests.drafters.tiny_drafters import write_drafter

CHOICE = {"tiny": "eagle2", "another": "medusa"}


@pytest.fixture
def shipped(
    tmp_path: Path, tiny_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> dict[str, Path]:
    """An EAGLE drafter that ships for the tiny model."""
    found = {"tiny/eagle": write_drafter(tmp_path / "eagle", tiny_checkpoint, "eagle")}
    monkeypatch.setattr(learned, "shipped_drafters", lambda: found)
    return found


def context_of(target: TargetModel, checkpoint: Checkpoint) -> DrafterContext:
    return DrafterContext(target=target, tokenizer=checkpoint.tokenizer, config=EngineConfig())


def test_nobody_has_to_name_a_drafter() -> None:
    assert SpeculationConfig().drafter == AUTO and parse_spec(AUTO) == (AUTO, "")


def test_without_an_entry_it_is_prompt_lookup(
    tiny_reference: ReferenceModel, tiny_checkpoint: Checkpoint, shipped: dict[str, Path]
) -> None:
    context = context_of(tiny_reference, tiny_checkpoint)
    assert default_spec(context, {}) == "prompt-lookup"
    assert default_spec(context, {"another": "medusa"}) == "prompt-lookup"
    shipped.clear()
    assert default_spec(context, CHOICE) == "prompt-lookup"
    assert isinstance(make_drafter(AUTO, context), PromptLookup)


def test_a_target_with_a_shipped_drafter_gets_what_the_table_says(
    tiny_reference: ReferenceModel,
    tiny_checkpoint: Checkpoint,
    shipped: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("slipstream.drafters.registry.default_spec", lambda _: "eagle2")
    context = context_of(tiny_reference, tiny_checkpoint)
    assert default_spec(context, CHOICE) == "eagle2"
    assert make_drafter(AUTO, context).name == "eagle2"


def test_the_same_model_in_another_format_gets_it_too(
    tiny_reference: ReferenceModel, tiny_checkpoint: Checkpoint, shipped: dict[str, Path]
) -> None:
    info = dataclasses.replace(tiny_reference.info, fingerprint="quantised")
    other = cast(
        Any, SimpleNamespace(info=info, embed=tiny_reference.embed, head=tiny_reference.head)
    )
    assert default_spec(context_of(other, tiny_checkpoint), CHOICE) == "prompt-lookup"
    add_targets(shipped["tiny/eagle"], ["quantised"])
    assert default_spec(context_of(other, tiny_checkpoint), CHOICE) == "eagle2"


def test_a_target_that_lends_no_weights_gets_prompt_lookup(
    tiny_reference: ReferenceModel, tiny_checkpoint: Checkpoint, shipped: dict[str, Path]
) -> None:
    other = cast(Any, SimpleNamespace(info=tiny_reference.info))
    assert default_spec(context_of(other, tiny_checkpoint), CHOICE) == "prompt-lookup"


def test_every_entry_can_be_built() -> None:
    shipped = learned.shipped_drafters()
    for model, spec in DEFAULTS.items():
        parse_spec(spec)
        assert any(name.startswith(f"{model}/") for name in shipped)
