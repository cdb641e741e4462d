"""Settings refuse what they don't know or can't honour, and say what is valid."""

from __future__ import annotations

import dataclasses
import math

import numpy as np
import pytest

from slipstream.config import EngineConfig, SamplingParams, SpeculationConfig
from slipstream.errors import InvalidInput, UnknownName


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("temperature", -0.1, "temperature must be a finite number >= 0"),
        ("temperature", math.nan, "temperature must be a finite number >= 0"),
        ("temperature", math.inf, "temperature"),
        ("temperature", "hot", "temperature"),
        ("top_p", 0.0, r"top_p must be a number in \(0, 1\]"),
        ("top_p", 1.01, "top_p"),
        ("top_k", -1, "top_k must be a whole number >= 0"),
        ("top_k", 2.5, "top_k"),
        ("min_p", 1.5, "min_p"),
        ("repetition_penalty", 0.0, r"repetition_penalty must be a number in \[0.001, 1000\]"),
        ("presence_penalty", math.nan, "presence_penalty"),
        ("logit_bias", {-1: 1.0}, "logit_bias token id"),
        ("logit_bias", {3: math.inf}, "logit_bias of token 3"),
        ("banned_token_ids", (1, -2), "banned_token_ids entry"),
        ("allowed_token_ids", (), "at least one token"),
        ("max_tokens", 0, "max_tokens must be a whole number >= 1"),
        ("stop", ("",), "non-empty strings"),
        ("stop", None, "stop must be a sequence"),
        ("stop_token_ids", 5, "stop_token_ids must be a sequence"),
        ("logit_bias", None, "logit_bias must map token ids"),
        ("seed", -1, "seed"),
        ("seed", True, "seed"),
        ("logprobs", 101, "logprobs"),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_valid(
    field: str, value: object, words: str
) -> None:
    with pytest.raises(InvalidInput, match=words):
        SamplingParams(**{field: value})


def test_allowed_tokens_that_are_all_banned_are_refused() -> None:
    with pytest.raises(InvalidInput, match="leaves nothing"):
        SamplingParams(allowed_token_ids=(1, 2), banned_token_ids=(2, 1, 5))


def test_an_unknown_field_is_refused_and_the_valid_ones_listed() -> None:
    with pytest.raises(UnknownName, match=r"'temprature'.*temperature.*top_p"):
        SamplingParams.from_mapping({"temprature": 1.0})
    with pytest.raises(TypeError):
        SamplingParams(temprature=1.0)  # type: ignore[call-arg]


def test_a_mapping_builds_the_same_settings() -> None:
    values = {"temperature": 0.5, "stop": ["a", "b"], "logit_bias": {3: 1.0}}
    assert SamplingParams.from_mapping(values) == SamplingParams(
        temperature=0.5, stop=("a", "b"), logit_bias={3: 1.0}
    )


def test_a_single_stop_string_is_not_taken_for_its_letters() -> None:
    assert SamplingParams(stop="END").stop == ("END",)


def test_settings_are_frozen_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().temperature = 1.0  # type: ignore[misc]
    with pytest.raises(TypeError):
        SamplingParams(1.0)  # type: ignore[misc]


@pytest.mark.parametrize("k", [-1, 65, 2.0, True])
def test_a_depth_outside_its_range_is_refused(k: object) -> None:
    with pytest.raises(InvalidInput, match=r"k must be auto or a whole number in \[0, 64\]"):
        SpeculationConfig(k=k)  # type: ignore[arg-type]


def test_unknown_choices_of_the_engine_list_the_valid_ones() -> None:
    with pytest.raises(UnknownName, match="auto, hf, native, reference"):
        EngineConfig(backend="cuda")
    with pytest.raises(UnknownName, match="weights"):
        EngineConfig(weights="fp8")
    with pytest.raises(InvalidInput, match="max_batch"):
        EngineConfig(max_batch=0)


def test_numpys_numbers_are_taken_and_kept_as_pythons() -> None:
    params = SamplingParams(
        temperature=np.float32(0.75),  # type: ignore[arg-type]
        top_k=np.int64(3),  # type: ignore[arg-type]
        logit_bias={np.int32(3): np.float64(1.5)},  # type: ignore[dict-item]
        stop_token_ids=np.array([4, 5]),  # type: ignore[arg-type]
        seed=np.uint64(2**63),  # type: ignore[arg-type]
    )
    assert params == SamplingParams(
        temperature=0.75, top_k=3, logit_bias={3: 1.5}, stop_token_ids=(4, 5), seed=2**63
    )
    assert {type(v) for v in (params.top_k, params.seed, *params.stop_token_ids)} == {int}
    assert SpeculationConfig(k=np.int8(5)).k == 5  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        SamplingParams(top_k=np.float64(2.5))  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        SamplingParams(temperature=np.bool_(True))  # type: ignore[arg-type]


def test_settings_are_hashable_and_equal_ones_hash_alike() -> None:
    one = SamplingParams(temperature=1, logit_bias={1: 2.0, 3: 4.0}, stop=["a"])  # type: ignore[arg-type]
    other = SamplingParams(temperature=1.0, logit_bias={3: 4.0, 1: 2.0}, stop=("a",))
    assert one == other
    assert len({one, other, SamplingParams()}) == 2
    assert len({SpeculationConfig(), SpeculationConfig()}) == 1
