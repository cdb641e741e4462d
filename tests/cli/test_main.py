"""The way into the commands: names, help, and every error as one line with status 2."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from types import ModuleType

import click
import pytest

from slipstream.cli import main as front
from slipstream.cli.main import Entry, main
from slipstream.errors import (
    CorruptModel,
    DownloadError,
    InvalidInput,
    MissingExtra,
    NumericalError,
    SlipstreamError,
    UnknownName,
    Unsupported,
)

Outcome = Callable[[], object]


@pytest.fixture
def fake_command(monkeypatch: pytest.MonkeyPatch) -> Callable[[Outcome], None]:
    """Makes ``slipstream fake`` do something."""

    def install(outcome: Outcome) -> None:
        module = ModuleType("fake_command_module")
        module.fake = click.Command("fake", callback=outcome)  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, module.__name__, module)
        entry = Entry("fake_command_module:fake", "Does something.")
        monkeypatch.setattr(front, "COMMANDS", {"fake": entry})

    return install


def raising(error: BaseException) -> Outcome:
    def outcome() -> None:
        raise error

    return outcome


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_lists_every_command(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 0
    out = capsys.readouterr().out
    for name, entry in front.COMMANDS.items():
        assert name in out
        assert entry.summary in out


@pytest.mark.parametrize("name", front.COMMANDS)
def test_every_command_can_be_loaded_and_explains_itself(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name, "--help"]) == 0
    out = capsys.readouterr().out
    assert out.startswith(f"Usage: slipstream {name} ")
    assert len(out.split("\n\n")[1]) > 20


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("slipstream, version ")


def test_an_unknown_command_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generat"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("slipstream: error: unknown command 'generat'; valid: generate, ")


@pytest.mark.parametrize(
    "arguments",
    [["--nonsense"], ["theory", "--nonsense"], ["theory", "--alpha", "x"], ["theory", "--c", "0"]],
)
def test_a_wrong_option_is_one_line_that_points_to_the_help(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("slipstream: error: ")
    assert "--help)" in captured.err


@pytest.mark.parametrize(
    "error",
    [
        SlipstreamError("what happened"),
        InvalidInput("what happened"),
        CorruptModel("what happened"),
        DownloadError("what happened"),
        NumericalError("what happened"),
        MissingExtra("what happened"),
        Unsupported("what\n  happened"),
        FileNotFoundError(2, "what happened", "some/file"),
        click.ClickException("what happened"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_deliberate_error_is_one_line_and_status_2(
    error: Exception,
    fake_command: Callable[[Outcome], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(raising(error))
    assert main(["fake"]) == 2
    line = capsys.readouterr().err
    assert line.startswith("slipstream: error: ")
    assert line.endswith("what happened\n")
    assert line.count("\n") == 1


def test_an_unknown_name_lists_the_valid_ones(
    fake_command: Callable[[Outcome], None], capsys: pytest.CaptureFixture[str]
) -> None:
    fake_command(raising(UnknownName("drafter", "oracle", ["none", "draft:MODEL"])))
    assert main(["fake"]) == 2
    assert capsys.readouterr().err == (
        "slipstream: error: unknown drafter 'oracle'; valid: draft:MODEL, none\n"
    )


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
@pytest.mark.parametrize("arguments, status", [("theory --alpha .5 --c .1", 0), ("nonsense", 2)])
def test_a_closed_stream_loses_what_is_written_there_and_no_more(
    closed: str, arguments: str, status: int
) -> None:
    command = f'"{sys.executable}" -m slipstream {arguments} {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == status
    assert "Traceback" not in done.stderr
    assert status == 0 or done.stdout == ""


def test_a_closed_stdin_is_no_prompt() -> None:
    command = f'"{sys.executable}" -m slipstream generate <&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "slipstream: error: there is no prompt: stdin is closed\n"


def test_a_bug_is_not_dressed_up_as_bad_input(fake_command: Callable[[Outcome], None]) -> None:
    fake_command(raising(AssertionError("an invariant broke")))
    with pytest.raises(AssertionError):
        main(["fake"])


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_an_interrupt_is_status_130_without_a_traceback(
    error: BaseException,
    fake_command: Callable[[Outcome], None],
    capsys: pytest.CaptureFixture[str],
) -> None:
    fake_command(raising(error))
    assert main(["fake"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_reader_that_leaves_early_is_no_error_worth_a_word() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "slipstream", "theory", "--alpha", "0.5", "--c", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    process.stdout.close()
    complaint = process.stderr.read()
    process.stderr.close()
    assert process.wait(timeout=60) == 1
    assert complaint == b""


def test_python_dash_m_is_the_same_door() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "slipstream", "theory", "--alpha", "2", "--c", "0.1"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert run.returncode == 2
    assert run.stderr == "slipstream: error: alpha must lie in [0, 1], not 2.0\n"
