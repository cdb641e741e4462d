"""``slipstream inspect`` of a drafter checkpoint."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.cli.main import main
from slipstream.models.checkpoint import Checkpoint
from tests.drafters.tiny_drafters import write_drafter

Captured = pytest.CaptureFixture[str]


def test_it_says_what_a_drafter_is(
    capsys: Captured, tmp_path: Path, tiny_checkpoint: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    write_drafter(
        tmp_path / "d",
        tiny_checkpoint,
        "medusa",
        vocabulary=range(100),
        rank_accuracy=((0.5, 0.2), (0.25,)),
        targets=("b0b1",),
    )
    assert main(["inspect", str(tmp_path / "d")]) == 0
    text = capsys.readouterr().out
    for words in (
        "medusa, 3 heads of width 48",
        f"{tiny_checkpoint.name}, fingerprint {tiny_checkpoint.fingerprint}",
        "also for b0b1",
        "100 of 320 tokens",
        "recipe random",
        "Apache-2.0",
        "0.50, 0.25",
    ):
        assert words in text


def test_as_json(capsys: Captured, tmp_path: Path, tiny_checkpoint: Checkpoint) -> None:
    write_drafter(tmp_path / "d", tiny_checkpoint, "eagle")
    assert main(["inspect", "--json", str(tmp_path / "d")]) == 0
    assert json.loads(capsys.readouterr().out)["architecture"] == "eagle"


def test_a_damaged_one_is_an_error(
    capsys: Captured, tmp_path: Path, tiny_checkpoint: Checkpoint
) -> None:
    write_drafter(tmp_path / "d", tiny_checkpoint, "eagle")
    (tmp_path / "d" / "model.safetensors").write_bytes(b"12345678")
    assert main(["inspect", str(tmp_path / "d")]) != 0
    assert "model.safetensors" in capsys.readouterr().err
