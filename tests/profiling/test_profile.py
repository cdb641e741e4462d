"""A whole profile of a small model: its findings, its report, its settings, its words."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from slipstream import Engine, SamplingParams
from slipstream.config import EngineConfig, SpeculationConfig
from slipstream.engine.settings import read_settings
from slipstream.errors import InvalidInput
from slipstream.profiling.acceptance import Estimate
from slipstream.profiling.engines import beside
from slipstream.profiling.findings import Check, Profile
from slipstream.profiling.measuring import measure
from slipstream.profiling.page import html
from slipstream.profiling.prediction import SpeedupCurve
from slipstream.profiling.profile import check, profile
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.profiling.report import advice, describe_check, spell, table
from slipstream.profiling.tune import other_engines, reasons, settings_for
from tests.profiling.conftest import Never

PROMPTS = [
    LabelledPrompt("abcabcabc", "letters"),
    LabelledPrompt("hello hello", "words"),
    LabelledPrompt("12 34 12 34", "letters"),
]


@pytest.fixture
def found(engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Profile:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    result = profile(
        engine, ["prompt-lookup"], PROMPTS, model="table", temperatures=(0.0, 0.8), max_tokens=24
    )
    check(engine, result, PROMPTS, max_tokens=24)
    return result


def test_a_profile_holds_every_figure_and_checks_itself(found: Profile) -> None:
    assert [entry.temperature for entry in found.drafters] == [0.0, 0.8]
    entry = found.drafters[0]
    assert set(entry.domains) == {"letters", "words"} == set(entry.domain_curves)
    assert len(entry.curve.speedups) == 13
    fixed, auto = found.checks
    assert fixed.measured.k == max(entry.curve.best, 1) and auto.measured.k == "auto"
    assert fixed.error is not None and auto.error is None
    assert fixed.measured.same_tokens and auto.measured.same_tokens
    values = json.loads(json.dumps(found.as_dict(), allow_nan=False))
    assert values["drafters"][0]["prediction"]["k"] == list(range(13))


class Tags(HTMLParser):
    """Opened and closed tags, and whatever a browser would fetch."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.fetched: list[str] = []
        self.counts: dict[str, int] = {}

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        self.fetched += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_report_is_one_sound_page_that_fetches_nothing(found: Profile) -> None:
    page = html(found)
    tags = Tags()
    tags.feed(page)
    assert not tags.open and not tags.fetched
    assert tags.counts["svg"] >= 6 and "nan" not in re.sub(r"<script.*?</script>", "", page).lower()
    (data,) = re.findall(r'id="profile">(.*?)</script>', page)
    assert json.loads(data)["model"] == "table"


def test_a_label_cannot_break_out_of_the_report(found: Profile) -> None:
    found.model = "</script><b>evil"
    tags = Tags()
    tags.feed(html(found))
    assert "b" not in tags.counts


def test_the_advice_says_what_to_do(found: Profile) -> None:
    entry = found.drafters[0]
    text = advice(entry)
    assert text.startswith("prompt-lookup at T = 0: ")
    assert "k = " in text or "decode plainly" in text
    assert len(table(found)) == 3
    assert spell(Estimate(1.5, float("nan"), float("nan")), "×") == "1.50×"
    assert spell(Estimate(float("nan"), float("nan"), float("nan"))) == "unknown"


def test_a_drafter_that_never_hits_is_called_that(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    found = profile(engine, [Never()], PROMPTS[:1], model="m", max_tokens=12)
    check(engine, found, PROMPTS[:1], max_tokens=12)
    assert "never had a draft" in advice(found.drafters[0])
    assert settings_for(found, SpeculationConfig(), EngineConfig()).speculation.drafter == "none"
    assert "leave it off" in other_engines(found)["vllm"]["why"]
    json.dumps(found.as_dict(), allow_nan=False)
    assert "unknown" in html(found)


def test_one_prompt_is_not_taken_for_many(engine: Engine) -> None:
    (measured,) = measure(engine, [4], PROMPTS[:1], SamplingParams(max_tokens=12), repeats=1)
    text = describe_check(Check(drafter="d", temperature=0, predicted=1.2, measured=measured))
    assert "[" not in text and "predicted 1.20×" in text


def test_unknown_drafters_are_refused_or_left_out_by_wish(
    engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    with pytest.raises(InvalidInput, match="unknown drafter"):
        profile(engine, ["crystal-ball"], PROMPTS, model="m", max_tokens=8)
    with pytest.raises(InvalidInput, match="no drafter to profile"):
        profile(engine, ["crystal-ball"], PROMPTS, model="m", max_tokens=8, tolerate=True)
    with pytest.raises(InvalidInput, match="at least one prompt"):
        profile(engine, ["prompt-lookup"], [], model="m")


def test_settings_travel_through_a_file_into_an_engine(
    engine: Engine, found: Profile, tmp_path: Path
) -> None:
    asked = SpeculationConfig(tree_width=3, allow_other_target=True)
    settings = settings_for(found, asked, EngineConfig(threads=1))
    assert settings.speculation.tree_width == 3 and settings.speculation.allow_other_target
    file = tmp_path / "settings.json"
    file.write_text(json.dumps({**settings.as_dict(), "because": reasons(found)}))
    read = read_settings(file)
    assert read == settings
    built = beside(engine, drafter=read.speculation.drafter, k=read.speculation.k, costs=read.costs)
    assert built.generate("abcabc", SamplingParams(max_tokens=8)).stats.emitted == 8


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("nonsense", "isn't JSON"),
        ("{}", "`slipstream tune` writes one"),
        ('{"slipstream_settings": 99}', "version 99"),
        ('{"slipstream_settings": 1, "model": "m"}', "lacks a valid 'speculation'"),
        (
            '{"slipstream_settings": 1, "model": "m", "speculation": {"k": -1}, "engine": {}}',
            "k must be auto",
        ),
        (
            '{"slipstream_settings": 1, "model": "m", "speculation": {"x": 1}, "engine": {}}',
            "unknown SpeculationConfig field 'x'",
        ),
    ],
)
def test_a_file_that_holds_no_settings_is_refused(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "settings.json"
    file.write_text(content)
    with pytest.raises(InvalidInput, match=re.escape(words)):
        read_settings(file)


def test_other_engines_get_their_own_words(found: Profile) -> None:
    paying(found)
    others = other_engines(found)
    assert others["vllm"]["speculative_config"]["method"] == "ngram"
    assert others["vllm"]["speculative_config"]["num_speculative_tokens"] == 2
    assert others["sglang"]["flags"][:2] == ["--speculative-algorithm", "NGRAM"]
    assert others["llama.cpp"]["flags"][-2:] == ["--spec-ngram-simple-size-m", "2"]
    assert all("verify with that engine" in engine["beware"] for engine in others.values())


def test_a_draft_model_goes_along_and_a_trained_head_does_not(found: Profile) -> None:
    paying(found)
    found.drafters = [replace(found.best, drafter="draft:small.gguf")]
    others = other_engines(found)
    assert others["vllm"]["speculative_config"]["model"] == "small.gguf"
    assert "small.gguf" in others["sglang"]["flags"]
    draft = ["--spec-draft-model", "small.gguf", "--spec-draft-n-max", "2"]
    assert others["llama.cpp"]["flags"] == ["--spec-type", "draft-simple", *draft]
    found.drafters = [replace(found.best, drafter="eagle2:ours.safetensors")]
    others = other_engines(found)
    assert "ours" not in json.dumps({name: others[name] for name in ("vllm", "sglang")})
    assert others["llama.cpp"] == {"why": "it has nothing like eagle2:ours.safetensors"}


def test_an_engine_without_the_best_drafter_gets_the_best_that_it_has(found: Profile) -> None:
    paying(found)
    lookup = found.best
    ours = replace(lookup, drafter="composite:prompt-lookup:2+eagle")
    better = replace(ours.curve, speedups=(*ours.curve.speedups[:2], Estimate(1.7, 1.4, 2.0)))
    found.drafters = [lookup, replace(ours, curve=better)]
    assert found.best.drafter.startswith("composite")
    for settings in other_engines(found).values():
        assert settings["why"].startswith("prompt-lookup, because it has nothing like composite:")
        assert "verify with that engine" in settings["beware"]


def paying(found: Profile) -> None:
    """Let k = 2 be the best."""
    values = (Estimate(1.0, 1.0, 1.0), Estimate(1.2, 1.1, 1.3), Estimate(1.5, 1.2, 1.8))
    found.drafters = [
        replace(found.best, curve=SpeedupCurve(tokens=(1.0, 1.5, 1.9), speedups=values))
    ]
