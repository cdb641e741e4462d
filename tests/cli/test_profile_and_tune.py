"""``slipstream profile`` and ``tune`` from the command line, and ``generate --settings``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream import Engine
from slipstream.cli.main import main
from slipstream.cli.profile import available
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.reference import ReferenceModel

FAST = ["--max-tokens", "8", "--drafters", "prompt-lookup", "--backend", "reference"]


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"prompt": "The quick brown fox", "domain": "a"}\n{"prompt": "jumps over"}\n')
    return path


def test_profile_prints_findings_and_writes_the_report(
    tiny_model_dir: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "out"
    where = ["--model", str(tiny_model_dir), "--prompts", str(prompts), "--output", str(output)]
    assert main(["profile", *where, *FAST, "--check-k", "1,auto"]) == 0
    printed = capsys.readouterr().out
    assert "prompt-lookup at T = 0:" in printed and "k = auto: measured" in printed
    values = json.loads((output / "profile.json").read_text())
    assert values["prompts"] == 2 and len(values["checks"]) == 2
    assert (output / "report.html").read_text().startswith("<!doctype html>")


def test_tune_writes_settings_that_generate_reads(
    tiny_model_dir: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = tmp_path / "settings.json"
    where = ["--model", str(tiny_model_dir), "--prompts", str(prompts), "--output", str(settings)]
    assert main(["tune", *where, *FAST, "--no-check"]) == 0
    values = json.loads(settings.read_text())
    assert set(values["other_engines"]) == {"vllm", "sglang", "llama.cpp"}
    assert values["engine"]["backend"] == "reference"
    capsys.readouterr()
    words = ["--raw", "--max-tokens", "6", "--json", "The quick"]
    assert main(["generate", "--settings", str(settings), *words]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["model"] == str(tiny_model_dir)
    assert told["k"] == values["speculation"]["k"]
    assert main(["generate", "--settings", str(settings), "--k", "3", *words]) == 0
    assert json.loads(capsys.readouterr().out)["k"] == 3  # the command line goes before the file


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--temperature", "hot"], "--temperature takes numbers"),
        (["--check-k", "99"], "--check-k takes auto and whole numbers in [1, 12]"),
        (["--drafters", "crystal-ball"], "unknown drafter 'crystal-ball'"),
        (["--verify", "hope"], "unknown verification rule 'hope'"),
    ],
)
def test_bad_options_are_one_line(
    tiny_model_dir: Path,
    arguments: list[str],
    words: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["profile", "--model", str(tiny_model_dir), *FAST, *arguments]) == 2
    error = capsys.readouterr().err
    assert words in error and "Traceback" not in error


def test_an_empty_prompt_file_is_one_line(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "empty.jsonl").write_text("")
    where = ["--model", str(tiny_model_dir), "--prompts", str(tmp_path / "empty.jsonl")]
    assert main(["profile", *where, *FAST]) == 2
    assert "holds no prompt" in capsys.readouterr().err


def test_all_drafters_are_those_that_need_no_argument_and_the_default(
    tiny_reference: ReferenceModel,
    tiny_checkpoint: Checkpoint,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(tiny_reference, tokenizer=tiny_checkpoint.tokenizer, drafter="none", k=0)
    names = available(engine)
    assert {"prompt-lookup", "medusa", "eagle2"} <= set(names)
    assert not {"none", "draft", "composite"} & set(names) and len(names) == len(set(names))
    default = "composite:prompt-lookup:2+eagle"
    monkeypatch.setattr("slipstream.drafters.default.default_spec", lambda _: default)
    assert available(engine) == [*names, default]


def test_what_generate_traces_profile_reads(
    tiny_model_dir: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [
        "--backend",
        "reference",
        "--raw",
        "--max-tokens",
        "8",
        "--k",
        "3",
        "--logprobs",
        "20",
        "--ignore-eos",
    ]
    for prompt in ("abc abc abc", "one two one two"):
        where = ["--model", str(tiny_model_dir), prompt]
        assert main(["generate", "--trace", "--json", *words, *where]) == 0
    traces = tmp_path / "traces.jsonl"
    traces.write_text(capsys.readouterr().out)
    output = tmp_path / "out"
    assert main(["profile", "--trace", str(traces), "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "prompt-lookup, coupled, T = 0: 2 prompts, 16 tokens" in printed
    assert "note:" not in printed
    values = json.loads((output / "profile.json").read_text())
    assert values["traces"][0]["acceptance"]["tokens"] == 16
    assert (output / "report.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--prompts"], "is a recorded trace: profile --trace FILE reads it"),
        (["--limit", "3", "--trace"], "--limit doesn't go with --trace"),
    ],
)
def test_a_trace_in_the_wrong_place_is_one_line(
    tmp_path: Path, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    trace = tmp_path / "trace.json"
    trace.write_text('{"text": "x", "trace": []}')
    assert main(["profile", *arguments, str(trace)]) == 2
    assert words in capsys.readouterr().err
