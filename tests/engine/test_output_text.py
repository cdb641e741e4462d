"""Text comes out once it is certain, and is never taken back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slipstream.engine.output_text import OutputText
from slipstream.models.tokenizer import Tokenizer
from tests.engine.conftest import make_byte_tokenizer

TOKENIZER = make_byte_tokenizer()


def push_all(output: OutputText, data: bytes) -> list[str]:
    pieces = []
    for byte in data:
        pieces.append(output.push(byte))
        if output.stopped:
            break
    return [*pieces, output.flush()]


def test_half_a_character_is_held_until_it_is_whole(byte_tokenizer: Tokenizer) -> None:
    output = OutputText(byte_tokenizer, ())
    assert [output.push(byte) for byte in "é😀".encode()] == ["", "é", "", "", "", "😀"]


def test_a_character_that_never_becomes_whole_comes_with_the_flush(
    byte_tokenizer: Tokenizer,
) -> None:
    output = OutputText(byte_tokenizer, ())
    assert output.push(0xF0) == ""
    assert output.flush() == "\ufffd"


@pytest.mark.parametrize(
    ("text", "stop", "expected"),
    [
        ("one END two", ("END",), "one "),
        ("one EN two", ("END",), "one EN two"),
        ("aab", ("ab",), "a"),
        ("abcabd", ("abd",), "abc"),
        ("x\n\ny", ("\n\n", "y"), "x"),
        ("hello", ("lo", "hell"), ""),
        ("héllo", ("é",), "h"),
        ("tail EN", ("END",), "tail EN"),
    ],
)
def test_the_earliest_stop_string_ends_the_text(
    text: str, stop: tuple[str, ...], expected: str
) -> None:
    output = OutputText(TOKENIZER, stop)
    assert "".join(push_all(output, text.encode())) == expected
    assert output.text == expected
    assert output.stopped == (expected != text)


@settings(derandomize=True, deadline=None)
@given(st.text("ab", max_size=30), st.lists(st.text("ab", min_size=1, max_size=4), max_size=3))
def test_what_is_shown_is_what_remains(text: str, stop: list[str]) -> None:
    output = OutputText(TOKENIZER, tuple(stop))
    shown = "".join(push_all(output, text.encode()))
    assert output.text == shown
    # The first stop string to be *completed* ends the text, before its own beginning.
    ends = [(text.find(s) + len(s), text.find(s)) for s in stop if s in text]
    if ends:
        end = min(end for end, _ in ends)
        assert shown == text[: min(begin for e, begin in ends if e == end)]
    else:
        assert shown == text
