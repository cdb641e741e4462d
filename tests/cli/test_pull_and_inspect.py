"""``slipstream pull`` and ``slipstream inspect`` from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.cli.main import main
from slipstream.models import catalog

Captured = pytest.CaptureFixture[str]


def test_pull_without_a_name_lists_the_models(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLIPSTREAM_CACHE", str(tmp_path))
    assert main(["pull"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("smollm2-135m ")
    assert line.endswith("Apache-2.0, 93 MB, not fetched yet")


def test_pull_prints_the_path(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalog, "pull", lambda name, progress: tmp_path / f"{name}.gguf")
    assert main(["pull", "smollm2-135m"]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "smollm2-135m.gguf")


def test_pull_of_an_unknown_name_lists_the_known_ones(capsys: Captured) -> None:
    assert main(["pull", "nope"]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err == ("slipstream: error: unknown built-in model 'nope'; valid: smollm2-135m\n")


def test_inspect_tells_what_a_model_is(capsys: Captured, tiny_model_dir: Path) -> None:
    assert main(["inspect", str(tiny_model_dir), "--json"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["architecture"] == "llama"
    assert facts["max_context"] == 512
    assert facts["parameters"] * 4 == facts["bytes"] == facts["formats"]["f32"]["bytes"]
    assert facts["tokenizer"]["ends"] == ["<|endoftext|>", "<|im_end|>"]
    assert facts["tokenizer"]["bos"] == "<|begin|>"
    assert facts["licence"] is None


def test_inspect_draws_a_table(capsys: Captured, tiny_model_dir: Path) -> None:
    assert main(["inspect", str(tiny_model_dir)]) == 0
    table = capsys.readouterr().out
    for text in ("tiny-llama", "llama", "6 heads of 8, 2 key heads", "512 tokens", "not stated"):
        assert text in table


@pytest.mark.parametrize("content", [b"", b"GGUF", b"something else entirely"])
def test_inspect_of_a_bad_file_is_one_line(
    content: bytes, capsys: Captured, tmp_path: Path
) -> None:
    path = tmp_path / "bad.gguf"
    path.write_bytes(content)
    assert main(["inspect", str(path)]) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert output.err.count("\n") == 1
    assert "Traceback" not in output.err
