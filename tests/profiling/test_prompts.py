"""Prompt files in every form, and the words for those that can't be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slipstream.errors import InvalidInput
from slipstream.profiling.prompts import (
    LabelledPrompt,
    default_prompts,
    read_prompts,
    spread_over_domains,
)


def write(path: Path, *entries: object) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries), encoding="utf-8")
    return path


def test_every_form_of_json_lines_is_read(tmp_path: Path) -> None:
    chat = [{"role": "user", "content": "Hello"}]
    file = write(
        tmp_path / "prompts.jsonl",
        {"prompt": "One"},
        {"turns": ["Two", "later"], "category": "qa"},
        {"messages": [*chat, {"role": "assistant", "content": "Hi"}], "domain": "chat"},
        {"custom_id": "a", "body": {"messages": chat}, "task": "log"},
        "Five",
    )
    assert read_prompts(file) == [
        LabelledPrompt("One", "all"),
        LabelledPrompt("Two", "qa"),
        LabelledPrompt(chat, "chat"),
        LabelledPrompt(chat, "log"),
        LabelledPrompt("Five", "all"),
    ]


def test_a_json_list_is_read(tmp_path: Path) -> None:
    file = tmp_path / "prompts.json"
    file.write_text('[{"prompt": "One"}, "Two"]')
    assert [labelled.prompt for labelled in read_prompts(file)] == ["One", "Two"]


def test_plain_text_holds_prompts_between_blank_lines(tmp_path: Path) -> None:
    file = tmp_path / "prompts.txt"
    file.write_text("First line,\nsecond line.\n  \n\nAnother prompt.\n")
    assert [labelled.prompt for labelled in read_prompts(file)] == [
        "First line,\nsecond line.",
        "Another prompt.",
    ]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.jsonl", "", "holds no prompt"),
        ("a.txt", "\n \n", "holds no prompt"),
        ("a.jsonl", '{"prompt": "x"}\nnot json', "line 2 is not JSON"),
        ("a.jsonl", '{"question": "x"}', "has none of: messages, turns, prompt"),
        ("a.jsonl", '{"prompt": ""}', "has none of"),
        ("a.jsonl", '{"messages": []}', "has none of"),
        ("a.jsonl", "17", "neither an object nor a string"),
        ("a.json", '[{"prompt": "x"', "is not JSON"),
    ],
)
def test_a_file_that_cannot_be_read_says_where_and_why(
    tmp_path: Path, name: str, content: str, words: str
) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InvalidInput, match=words):
        read_prompts(tmp_path / name)


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"ok \xff\xfe")
    with pytest.raises(InvalidInput, match="not UTF-8"):
        read_prompts(tmp_path / "a.txt")


def test_a_limit_takes_from_every_domain_in_turn() -> None:
    prompts = [LabelledPrompt(f"{d}{i}", d) for d in "ab" for i in range(3)]
    taken = spread_over_domains([*prompts, LabelledPrompt("c0", "c")], 5)
    assert [labelled.prompt for labelled in taken] == ["a0", "b0", "c0", "a1", "b1"]


def test_the_package_brings_prompts_of_several_kinds() -> None:
    prompts = default_prompts()
    assert len(prompts) >= 12 and len({labelled.domain for labelled in prompts}) >= 6
