"""What reaches a terminal: text that can't steer it, lines that end, bars that show progress."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from slipstream.cli import progress
from slipstream.cli.display import Display, harmless
from slipstream.cli.progress import LoadingBar
from slipstream.engine.generation import Generation
from slipstream.engine.request import Piece
from slipstream.engine.stats import RequestStats
from slipstream.engine.stream import Stream
from slipstream.errors import NumericalError


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain text, naïve 漢字 👩‍👩‍👧\tand\nlines", "plain text, naïve 漢字 👩‍👩‍👧\tand\nlines"),
        ("\x1b[31mred", "␛[31mred"),
        ("ring\x07\r\x00", "ring␇␍␀"),
        ("\x9b31m\x7f", "\ufffd31m\ufffd"),
    ],
)
def test_control_characters_become_pictures(text: str, shown: str) -> None:
    assert harmless(text) == shown


def finished() -> Generation:
    return Generation(
        text="The blue sky",
        token_ids=(1, 2, 3),
        origins=("bonus", "draft", "residual"),
        finish_reason="length",
        stats=RequestStats(),
        seed=0,
        verify="coupled",
        exact=True,
        drafter="prompt-lookup",
    )


def test_every_token_is_marked_by_where_it_came_from(capsys: pytest.CaptureFixture[str]) -> None:
    pieces = [
        Piece("The", (1,), ("bonus",)),
        Piece(" blue", (2,), ("draft",)),
        Piece(" sky", (3, 4), ("draft", "residual")),
    ]
    assert Display("always").write(Stream(iter(pieces), finished)).token_ids == (1, 2, 3)
    assert capsys.readouterr().out == (
        "The\x1b[32m blue\x1b[0m\x1b[33m\x1b[4m sky\x1b[0m\n"  # green; yellow and underlined
    )


def test_an_error_in_mid_text_ends_the_line_first(capsys: pytest.CaptureFixture[str]) -> None:
    def pieces() -> Iterator[Piece]:
        yield Piece("half a sen", (1,), ("bonus",))
        raise NumericalError("NaN")

    def result() -> None:
        raise AssertionError("there is none")

    with pytest.raises(NumericalError):
        Display("never").write(Stream(pieces(), result))  # type: ignore[arg-type]
    assert capsys.readouterr().out == "half a sen\n"


def test_an_error_before_any_text_leaves_stdout_empty(capsys: pytest.CaptureFixture[str]) -> None:
    def pieces() -> Iterator[Piece]:
        raise NumericalError("NaN")
        yield

    with pytest.raises(NumericalError):
        Display("never").write(Stream(pieces(), lambda: None))  # type: ignore[arg-type, return-value]
    assert capsys.readouterr().out == ""


def test_without_a_terminal_a_long_load_is_mentioned_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with LoadingBar() as bar:
        bar("packing weights", 0, 96_000_000)
        assert capsys.readouterr().err == ""  # it may be over before anybody wonders
        monkeypatch.setattr(progress, "_LONG_PATIENCE", 0.0)
        for done in (0, 50_000_000, 93_000_000):
            bar("fetching smollm2-135m", done, 93_000_000)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "slipstream: fetching smollm2-135m (93 MB) …\n"


def test_a_terminal_sees_a_bar_for_what_takes_long(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_PATIENCE", 0.0)
    with LoadingBar() as bar:
        bar("fetching", 40, 80)
        assert bar._progress is not None
        assert bar._progress.tasks[0].percentage == 50
        bar("fetching", 80, 80)
        bar("packing", 0, 0)
        assert len(bar._progress.tasks) == 2
    assert "fetching" in capsys.readouterr().err


def test_a_load_that_is_over_at_once_draws_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(progress, "_PATIENCE", 3600.0)
    with LoadingBar() as bar:
        bar("packing", 80, 80)
    assert capsys.readouterr().err == ""
