"""``slipstream generate`` on a tiny model: what goes where, and what is refused."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from slipstream.cli.generate import DRAFTERS, RULES
from slipstream.cli.main import main
from slipstream.drafters.checkpoint import save_drafter
from slipstream.drafters.registry import DRAFTERS as REGISTERED_DRAFTERS
from slipstream.models.checkpoint import Checkpoint
from slipstream.verification.registry import RULES as REGISTERED_RULES
from tests.drafters.tiny_drafters import config_for, identity, random_tensors

Generate = Callable[..., int]
ANSI = re.compile(r"\x1b\[[0-9;]*m")
PROMPT = "the target verifies them in one pass; the target verifies"


@pytest.fixture
def generate(tiny_model_dir: Path) -> Generate:
    """Runs the command on the tiny model with a few tokens; returns the exit status."""

    def run(*arguments: str, tokens: int = 24) -> int:
        place = ["--model", str(tiny_model_dir), "--backend", "reference"]
        return main(["generate", *place, "--max-tokens", str(tokens), "--ignore-eos", *arguments])

    return run


@pytest.fixture
def generate_json(generate: Generate, capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The same with ``--json``; returns the object."""

    def run(*arguments: str, tokens: int = 24) -> Any:
        assert generate(*arguments, "--json", tokens=tokens) == 0
        out = capsys.readouterr().out
        assert out.count("\n") == 1
        return json.loads(out)

    return run


def test_the_help_names_every_drafter_and_every_rule() -> None:
    assert set(re.findall(r"[a-z0-9-]+(?=:|,| or|$)", DRAFTERS)) == {
        "auto",
        *REGISTERED_DRAFTERS,
    }
    exact, _, lossy = RULES.partition("; LOSSY: ")
    for names, is_exact in ((exact, True), (lossy, False)):
        assert set(names.split(", ")) == {
            name for name, rule in REGISTERED_RULES.items() if rule.exact is is_exact
        }


def feed_stdin(monkeypatch: pytest.MonkeyPatch, content: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), encoding="utf-8"))


def test_a_pipe_gets_the_text_and_nothing_else(
    generate: Generate, generate_json: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    text = generate_json(PROMPT)["text"]
    assert generate(PROMPT) == 0
    captured = capsys.readouterr()
    assert captured.out == text.rstrip("\n") + "\n" if text.endswith("\n") else text + "\n"
    assert captured.err == ""


def test_json_holds_everything_about_the_request(generate_json: Callable[..., Any]) -> None:
    result = generate_json(PROMPT, "--seed", "5", "--temperature", "0.7")
    assert len(result["token_ids"]) == len(result["origins"]) == 24
    assert result["finish_reason"] == "length"
    assert result["seed"] == 5
    assert result["verify"] == "coupled"
    assert result["exact"] is True
    assert {
        "cycles",
        "drafted",
        "accepted",
        "acceptance_length",
        "alpha",
        "conditional_acceptance",
        "marginal_acceptance",
        "tokens_per_second",
        "draft_seconds",
        "target_seconds",
        "rest_seconds",
        "verify",
        "exact",
    } <= result["stats"].keys()
    assert result["prediction"]["assumes"] == "flat"
    assert "compare" not in result


@pytest.mark.parametrize("verify", ["coupled", "rejection", "block"])
@pytest.mark.parametrize("k", ["0", "1", "4", "8"])
def test_greedy_tokens_are_those_of_plain_decoding(
    verify: str, k: str, generate_json: Callable[..., Any]
) -> None:
    plain = generate_json(PROMPT, "--drafter", "none")
    drafted = generate_json(PROMPT, "--verify", verify, "--k", k)
    assert drafted["token_ids"] == plain["token_ids"]


@pytest.mark.parametrize("k", ["1", "5"])
def test_a_seed_plays_the_same_tokens_with_and_without_speculation(
    k: str, generate_json: Callable[..., Any]
) -> None:
    sampling = ["--temperature", "0.8", "--seed", "7", "--top-p", "0.95"]
    plain = generate_json(PROMPT, *sampling, "--drafter", "none")
    drafted = generate_json(PROMPT, *sampling, "--k", k)
    assert drafted["token_ids"] == plain["token_ids"]


def test_compare_decodes_plainly_beside_it(generate_json: Callable[..., Any]) -> None:
    result = generate_json(PROMPT, "--compare", "--temperature", "0.8")
    compare = result["compare"]
    assert compare["tokens_equal"] is True
    assert compare["first_difference"] is None
    assert compare["plain_token_ids"] == result["token_ids"]
    assert compare["seconds"] > 0
    assert compare["plain_seconds"] > 0
    ratio = result["stats"]["tokens_per_second"] / compare["plain_tokens_per_second"]
    assert compare["measured_speedup"] == pytest.approx(ratio)
    assert result["prediction"]["assumes"] == "measured"
    assert compare["predicted_speedup"] == result["prediction"]["speedup"]


def test_compare_keeps_the_text_on_stdout_and_the_panel_off_it(
    generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(PROMPT, "--compare", "--seed", "1") == 0
    captured = capsys.readouterr()
    assert "predicted" not in captured.out
    assert "measured" in captured.err
    assert "the same with and without speculation" in captured.err
    assert "\x1b" not in captured.out + captured.err


@pytest.mark.parametrize("arguments", [["-"], []])
@pytest.mark.parametrize("ending", [b"", b"\n", b"\r\n"])
def test_stdin_is_a_prompt_without_its_last_line_break(
    arguments: list[str],
    ending: bytes,
    generate_json: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    expected = generate_json(PROMPT, tokens=8)
    feed_stdin(monkeypatch, PROMPT.encode() + ending)
    assert generate_json(*arguments, tokens=8)["token_ids"] == expected["token_ids"]


def test_a_prompt_may_begin_with_a_dash(
    generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate("--", "-draft", tokens=2) == 0
    assert capsys.readouterr().out


def test_a_model_that_can_chat_is_chatted_with_unless_told_otherwise(
    generate_json: Callable[..., Any],
) -> None:
    default = generate_json(PROMPT)
    assert generate_json(PROMPT, "--chat")["token_ids"] == default["token_ids"]
    by_hand = f"<|im_start|>user\n{PROMPT}<|im_end|>\n<|im_start|>assistant\n"
    assert generate_json(by_hand, "--raw")["token_ids"] == default["token_ids"]
    assert generate_json(PROMPT, "--raw")["token_ids"] != default["token_ids"]
    with_system = f"<|im_start|>system\nBe brief.<|im_end|>\n{by_hand}"
    assert (
        generate_json(PROMPT, "--system", "Be brief.")["token_ids"]
        == generate_json(with_system, "--raw")["token_ids"]
    )


def test_sampling_options_reach_the_sampler(generate_json: Callable[..., Any]) -> None:
    free = generate_json(PROMPT)["token_ids"]
    banned = generate_json(PROMPT, "--ban", ",".join(map(str, set(free[:2]))))["token_ids"]
    assert not set(free[:2]) & set(banned)
    assert set(generate_json(PROMPT, "--allow", "40,41", "--allow", "42")["token_ids"]) <= {
        40,
        41,
        42,
    }
    biased = generate_json(PROMPT, "--logit-bias", "77=1000", "--logit-bias", "78=-3")
    assert set(biased["token_ids"]) == {77}
    penalised = generate_json(PROMPT, "--logit-bias", "77=50", "--frequency-penalty", "60")
    assert set(penalised["token_ids"]) != {77}


def test_logprobs_come_with_every_token(generate_json: Callable[..., Any]) -> None:
    assert len(generate_json(PROMPT, "--logprobs", "2")["logprobs"]) == 24


def test_a_stop_text_ends_the_output_before_it(generate_json: Callable[..., Any]) -> None:
    text = generate_json(PROMPT)["text"]
    stop = text[5:8]
    result = generate_json(PROMPT, "--stop", "never to be seen", "--stop", stop)
    assert result["finish_reason"] == "stop"
    assert result["text"] == text[: text.index(stop)]


@pytest.mark.parametrize("rule", ["argmax_match", "typical"])
def test_a_lossy_rule_is_labelled_wherever_it_is_met(
    rule: str,
    generate: Generate,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert generate(PROMPT, "--verify", rule, "--json") == 0
    captured = capsys.readouterr()
    result = json.loads(captured.out)
    assert result["exact"] is False
    assert result["stats"]["exact"] is False
    assert captured.err.startswith(f"slipstream: warning: --verify {rule} is LOSSY")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert generate(PROMPT, "--verify", rule) == 0
    assert f"no, LOSSY: {rule}" in ANSI.sub("", capsys.readouterr().out)


def test_a_terminal_gets_marked_tokens_and_a_panel(
    generate: Generate,
    generate_json: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plain = generate_json(PROMPT)
    assert "draft" in plain["origins"]
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert generate(PROMPT) == 0
    out = capsys.readouterr().out
    text, _, panel = out.partition("╭")
    assert "\x1b[32m" in text  # drafted and accepted
    for word in ("tokens/s", "acceptance", "alpha", "predicted", "seed"):
        assert word in panel


@pytest.mark.parametrize(
    ("color", "environment"),
    [("never", {}), ("auto", {"NO_COLOR": "1"})],
    ids=["never", "NO_COLOR"],
)
def test_a_terminal_without_colours_gets_the_panel_without_marks(
    color: str,
    environment: dict[str, str],
    generate: Generate,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert generate(PROMPT, "--color", color) == 0
    out = capsys.readouterr().out
    text, _, panel = out.partition("╭")
    assert "\x1b[3" not in text
    assert "acceptance" in panel


def test_colours_can_be_had_in_a_pipe(
    generate: Generate, generate_json: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    text = generate_json(PROMPT)["text"]
    assert generate(PROMPT, "--color", "always") == 0
    out = capsys.readouterr().out
    assert "\x1b[32m" in out
    assert ANSI.sub("", out).rstrip("\n") == text.rstrip("\n")


def test_plain_decoding_has_nothing_to_mark(
    generate: Generate, capsys: pytest.CaptureFixture[str]
) -> None:
    assert generate(PROMPT, "--color", "always", "--drafter", "none") == 0
    assert "\x1b" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([""], "the prompt is empty"),
        (["x", "--k", "-1"], "k must be auto or a whole number in [0, 64], not -1"),
        (["x", "--drafter", "oracle"], "unknown drafter 'oracle'; valid: "),
        (["x", "--verify", "hope"], "unknown verification rule 'hope'; valid: argmax_match, "),
        (["x", "--temperature", "-1"], "temperature must be"),
        (["x", "--temperature", "nan"], "temperature must be"),
        (["x", "--top-p", "0"], "top_p must be a number in (0, 1], not 0.0"),
        (["x", "--top-p", "1.5"], "top_p must be"),
        (["x", "--min-p", "2"], "min_p must be"),
        (["x", "--max-tokens", "0"], "max_tokens must be"),
        (["x", "--weights", "q3"], "unknown weights 'q3'; valid: auto, bf16, "),
        (["x", "--backend", "abacus"], "unknown backend 'abacus'; valid: auto, hf, "),
        (["x", "--threads", "0"], "threads must be"),
        (["x", "--logit-bias", "7"], "--logit-bias takes ID=VALUE"),
        (["x", "--logit-bias", "a=1"], "--logit-bias takes ID=VALUE"),
        (["x", "--ban", "1,b"], "--ban takes token ids"),
        (["x", "--allow", ""], "--allow takes token ids"),
        (["x", "--seed", "-1"], "seed must be"),
        (["x", "--logprobs", "1"], "--logprobs needs --json"),
        (["x", "--raw", "--system", "y"], "--system needs a chat template"),
        (["word " * 600], "the model's context of 512 takes prompts of at most 511"),
        (["\udcff"], "not valid Unicode"),
    ],
)
def test_bad_input_is_one_line_and_status_2(
    arguments: list[str],
    words: str,
    generate: Generate,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert generate(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("slipstream: error: ")
    assert captured.err.count("\n") == 1
    assert words in captured.err


def test_an_unknown_model_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["generate", "x", "--model", "no-such-model"]) == 2
    assert "smollm2-135m" in capsys.readouterr().err


def test_a_prompt_that_is_not_text_is_refused(
    generate: Generate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, b"caf\xe9 au lait")
    assert generate("-") == 2
    assert "not UTF-8 (byte 3)" in capsys.readouterr().err


def test_a_terminal_without_a_prompt_is_asked_for_one(
    generate: Generate, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    feed_stdin(monkeypatch, b"")
    monkeypatch.setattr(sys.stdin, "isatty", lambda: True)
    assert generate() == 2
    assert "give one as an argument or on stdin" in capsys.readouterr().err


@pytest.mark.model
def test_the_built_in_model_knows_paris(
    builtin_model_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["generate", "Name the capital of France.", "--max-tokens", "8", "--json"]) == 0
    assert "Paris" in json.loads(capsys.readouterr().out)["text"]


def test_a_drafter_of_another_model_is_refused_until_it_is_asked_for(
    generate: Generate,
    generate_json: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    tiny_checkpoint: Checkpoint,
    tmp_path: Path,
) -> None:
    trained_for = dataclasses.replace(identity(tiny_checkpoint), fingerprint="another")
    config = dataclasses.replace(config_for(tiny_checkpoint, "eagle"), target=trained_for)
    save_drafter(tmp_path, config, random_tensors(config))
    options = ["--drafter", f"eagle2:{tmp_path}", "--k", "3", "--tree-width", "2"]
    assert generate(PROMPT, *options) == 2
    assert "--allow-other-target" in capsys.readouterr().err
    speculative = generate_json(PROMPT, *options, "--allow-other-target")
    assert speculative["stats"]["drafted"] > 0
    plain = generate_json(PROMPT, "--drafter", "none")
    assert speculative["token_ids"] == plain["token_ids"]
