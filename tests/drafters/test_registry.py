"""Drafters are found by name, and wrong names are answered with the right ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from slipstream.config import EngineConfig, SamplingParams
from slipstream.drafters.base import Budget, Observation
from slipstream.drafters.no_drafter import NoDrafter
from slipstream.drafters.prompt_lookup import PromptLookup
from slipstream.drafters.registry import (
    DRAFTERS,
    DrafterContext,
    Registration,
    make_drafter,
    parse_spec,
)
from slipstream.errors import InvalidInput, UnknownName, Unsupported, VocabularyMismatch
from slipstream.models.base import NO_FEATURES, Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.types import Draft, SequenceState

CONTEXT = DrafterContext(target=cast(Any, None), tokenizer=cast(Any, None), config=EngineConfig())


def test_names_become_drafters() -> None:
    assert isinstance(make_drafter("none", CONTEXT), NoDrafter)
    assert isinstance(make_drafter("prompt-lookup", CONTEXT), PromptLookup)


def test_a_drafter_carries_its_registered_name() -> None:
    for name, entry in DRAFTERS.items():
        if entry.argument == "none":
            assert make_drafter(name, CONTEXT).name == name


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown drafter 'meduza'.*draft:PATH_OR_NAME.*none.*prompt-lookup"
    ):
        make_drafter("meduza:x", CONTEXT)


def test_arguments_are_asked_for_and_refused_where_they_belong() -> None:
    def build(argument: str, _: DrafterContext) -> NoDrafter:
        return NoDrafter()

    drafters = {
        "bare": Registration(build=build, usage="bare"),
        "file": Registration(build=build, argument="required", usage="file:PATH"),
        "either": Registration(build=build, argument="optional", usage="either[:PATH]"),
    }
    assert parse_spec("file:C:/x:y", drafters) == ("file", "C:/x:y")
    assert parse_spec("either", drafters) == ("either", "")
    assert parse_spec("either:x", drafters) == ("either", "x")
    for spec, message in [
        ("bare:x", "takes no argument"),
        ("file", "needs an argument: file:PATH"),
        ("file:", "needs an argument"),
        ("either:", "needs an argument"),
    ]:
        with pytest.raises(InvalidInput, match=message):
            parse_spec(spec, drafters)


def test_the_registry_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        DRAFTERS["mine"] = DRAFTERS["none"]  # type: ignore[index]


def test_no_drafter_drafts_nothing_and_asks_for_nothing() -> None:
    drafter = make_drafter("none", CONTEXT)
    sequence = SequenceState(uid=0, tokens=[1, 2], prompt_length=2, params=SamplingParams(), seed=0)
    assert drafter.features == NO_FEATURES
    drafter.begin(sequence, None)
    assert drafter.propose([sequence], [Budget(depth=4, nodes=4)], "sampled") == [Draft()]
    drafter.observe([Observation(sequence, 1, ())])
    drafter.end(sequence)


def test_a_draft_model_is_loaded_as_a_target_is(
    tiny_model_dir: Path, tiny_reference: ReferenceModel, tiny_checkpoint: Checkpoint
) -> None:
    context = DrafterContext(
        target=tiny_reference,
        tokenizer=tiny_checkpoint.tokenizer,
        config=EngineConfig(backend="reference"),
    )
    drafter = make_drafter(f"draft:{tiny_model_dir}", context)
    sequence = SequenceState(
        uid=0, tokens=[5, 6, 7], prompt_length=3, params=SamplingParams(), seed=0
    )
    [draft] = drafter.propose([sequence], [Budget(depth=4, nodes=4)], "greedy")
    # Drafter and target are the same model here, so it drafts what the target would write.
    handle, text = tiny_reference.open(), [5, 6, 7]
    for token in draft.tree.tokens:
        fed = text[tiny_reference.length(handle) :]
        logits = tiny_reference.forward(Rows.chain(handle, fed)).logits
        tiny_reference.commit(handle, range(len(fed)))
        assert token == int(logits[-1].argmax())
        text.append(token)
    assert len(text) == 7


def test_a_draft_model_of_other_tokens_is_refused(
    make_tiny_model: Callable[..., Path],
    tmp_path: Path,
    tiny_reference: ReferenceModel,
    tiny_checkpoint: Checkpoint,
) -> None:
    context = DrafterContext(
        target=tiny_reference,
        tokenizer=tiny_checkpoint.tokenizer,
        config=EngineConfig(backend="reference"),
    )
    other = make_tiny_model(tmp_path / "other", vocab_size=300)
    with pytest.raises(VocabularyMismatch, match=r"token 300 is '.*' to the target and unknown"):
        make_drafter(f"draft:{other}", context)


def test_drafter_and_target_compute_with_arrays_of_one_kind(
    monkeypatch: pytest.MonkeyPatch, tiny_reference: ReferenceModel, tiny_checkpoint: Checkpoint
) -> None:
    tokenizer = tiny_checkpoint.tokenizer
    on_torch = SimpleNamespace(info=tiny_reference.info, device="cuda:1")
    asked: list[EngineConfig] = []

    def load_model(spec: str, config: EngineConfig) -> Any:
        asked.append(config)
        return SimpleNamespace(target=on_torch, tokenizer=tokenizer)

    def context_of(target: Any) -> DrafterContext:
        return DrafterContext(target=target, tokenizer=tokenizer, config=EngineConfig())

    monkeypatch.setattr("slipstream.models.loader.load_model", load_model)
    make_drafter("draft:x", context_of(on_torch))
    assert (asked[0].backend, asked[0].device) == ("hf", "cuda:1")
    with pytest.raises(Unsupported, match="'x' only runs through Hugging Face"):
        make_drafter("draft:x", context_of(tiny_reference))
