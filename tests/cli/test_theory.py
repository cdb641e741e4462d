"""``slipstream theory``: the checked values, drawn and as JSON."""

from __future__ import annotations

import json

import pytest

from slipstream.cli.main import main
from slipstream.cli.theory import draw_curve
from slipstream.theory.speedup import best_k, curve

ARGUMENTS = ["theory", "--alpha", "0.75", "--c", "0.1", "--k", "4"]


def test_it_prints_the_checked_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(ARGUMENTS) == 0
    out = capsys.readouterr().out
    assert "tokens per cycle   3.05\n" in out
    assert "speedup            2.18×\n" in out
    assert "best k             5 at 2.19×\n" in out
    assert "break-even alpha   0.287 at c = 0.1\n" in out


def test_json_has_the_same_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*ARGUMENTS, "--max-k", "6", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["tokens"] == pytest.approx(3.0508, abs=5e-5)
    assert values["speedup"] == pytest.approx(2.1791, abs=5e-5)
    assert values["best"]["k"] == 5
    assert values["best"]["speedup"] == pytest.approx(2.192, abs=5e-4)
    assert values["break_even_alpha"] == pytest.approx(0.287, abs=5e-4)
    assert values["break_even_c"] == pytest.approx((3.0508 - 1) / 4, abs=5e-5)
    assert [point["k"] for point in values["curve"]] == list(range(7))


def test_a_drafter_dearer_than_the_target_has_no_break_even(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["theory", "--alpha", "0.9", "--c", "1.5", "--json"]) == 0
    values = json.loads(capsys.readouterr().out)
    assert values["break_even_alpha"] is None
    assert values["best"] == {"k": 0, "tokens": 1.0, "speedup": 1.0}
    assert main(["theory", "--alpha", "0.9", "--c", "1.5"]) == 0
    assert "none: a draft costs more than the target" in capsys.readouterr().out


def test_bars_are_as_long_as_the_speedup_and_the_best_is_marked() -> None:
    points = curve(0.75, 0.1, 12)
    lines = draw_curve(points, best_k(0.75, 0.1), fancy=False)[1:]
    assert "\x1b" not in "".join(lines)
    lengths = [line.count("#") for line in lines]
    for point, length in zip(points, lengths, strict=True):
        assert length == pytest.approx(point.speedup / 2.192 * 44, abs=0.6)
    assert [line.endswith("<- best") for line in lines].index(True) == 5


def test_below_plain_decoding_the_bar_stops_short_of_the_mark() -> None:
    lines = draw_curve(curve(0.3, 0.4, 8), best_k(0.3, 0.4), fancy=True)[1:]
    assert "┊" not in lines[0]
    assert all("┊" in line and "\x1b[31m" in line for line in lines[1:])


@pytest.mark.parametrize(
    ("option", "value"), [("--alpha", "nan"), ("--alpha", "1.5"), ("--c", "-1"), ("--k", "0")]
)
def test_what_makes_no_sense_is_refused(
    option: str, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*ARGUMENTS, option, value]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert value.rstrip("0") in captured.err or value in captured.err
