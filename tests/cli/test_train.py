"""``slipstream train`` from data to a drafter and its curve, by the documented commands."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from slipstream.cli.train import LOSSES, train
from slipstream.drafters.checkpoint import load_drafter
from slipstream.errors import InvalidInput, MissingExtra
from slipstream.training import losses


def run(*arguments: object) -> str:
    result = CliRunner().invoke(train, [str(a) for a in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_two_commands_make_a_drafter_and_a_third_its_curve(
    tiny_model_dir: Path, tmp_path: Path
) -> None:
    prompts = tmp_path / "prompts.txt"
    prompts.write_text("\n".join(f"the dog and {i} foxes" for i in range(40)), encoding="utf-8")
    data = ("data", "--model", tiny_model_dir, "--prompts", prompts, "--output", tmp_path / "data")
    output = run(
        *data,
        "--threads",
        1,
        "--tokens",
        1500,
        "--answer-tokens",
        24,
        "--shard",
        20,
        "--held-out",
        0.2,
    )
    assert "will take about" in output
    common = (
        "--model",
        tiny_model_dir,
        "--data",
        tmp_path / "data",
        "--tokens",
        1500,
        "--threads",
        1,
    )
    small = ("--length", 128, "--rows", 2, "--vocabulary", 200, "--evaluate-every", 500)
    for kind, own in (
        ("eagle", ("--depths", 2, "--loss", "kl")),
        ("medusa", ("--heads", 2)),
        ("draft", ("--layers", "0,2")),
    ):
        report = run(kind, *common, *small, *own, "--output", tmp_path / kind)
        assert "held-out best-token acceptance" in report
        checkpoint = load_drafter(tmp_path / kind)
        assert checkpoint.config.architecture == kind
        assert checkpoint.vocabulary is not None and len(checkpoint.vocabulary) == 200
    assert "curve.svg" in run("plot", tmp_path / "eagle")
    assert (tmp_path / "eagle" / "curve.svg").exists()


def test_the_losses_offered_are_those_there_are() -> None:
    assert set(LOSSES) == set(losses.LOSSES)


def test_training_without_torch_names_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "accelerate", None)
    with pytest.raises(MissingExtra, match=r"slipstream\[train\]"):
        run("eagle", "--data", tmp_path, "--output", tmp_path / "x", "--tokens", 10)


def test_layers_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="block numbers"):
        run("draft", "--data", tmp_path, "--output", tmp_path, "--tokens", 9, "--layers", "a")


@pytest.mark.parametrize("kind", ["data", "eagle"])
def test_an_output_that_is_a_file_and_no_tokens_are_refused_before_any_work(
    tmp_path: Path, kind: str
) -> None:
    (file := tmp_path / "file").write_text("text")
    common = (kind, *(() if kind == "data" else ("--data", str(tmp_path))))
    for output, tokens, fault in ((file, "9", "is a file"), (tmp_path / "new", "0", "x>=1")):
        result = CliRunner().invoke(train, [*common, "--output", str(output), "--tokens", tokens])
        assert result.exit_code == 2
        assert fault in result.output
    assert file.read_text() == "text" and not (tmp_path / "new").exists()
