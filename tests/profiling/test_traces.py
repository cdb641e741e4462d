"""Acceptance out of recorded traces, beside what was recorded from the rule itself."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from slipstream import Engine, SamplingParams
from slipstream.engine.trace import Trace
from slipstream.errors import InvalidInput
from slipstream.profiling.acceptance import summarise
from slipstream.profiling.page import traces_html
from slipstream.profiling.prompts import LabelledPrompt
from slipstream.profiling.recording import record
from slipstream.profiling.report import positions
from slipstream.profiling.traces import read_traces

PROMPTS = [LabelledPrompt(text, text[0]) for text in ("abc", "hello", "xyz!", "12 34")]


def recorded(engine: Engine, labelled: LabelledPrompt, params: SamplingParams) -> dict[str, Any]:
    trace = Trace(engine.tokenizer)
    stream = engine.stream(engine.encode(labelled.prompt), params, trace=trace)
    for _ in stream:
        pass
    values = {
        "model": "table",
        "verify": engine.rule.name,
        "domain": labelled.domain,
        "temperature": params.temperature,
    }
    return {**values, **stream.result.as_dict(), "trace": trace.as_dict()["cycles"]}


def write(path: Path, *entries: dict[str, Any]) -> Path:
    path.write_text("\n".join(json.dumps(entry) for entry in entries))
    return path


def node(parent: int, drawn: str, p: float | None, q: float | None) -> dict[str, Any]:
    return {"parent": parent, "depth": 1 if parent < 0 else 2, "drawn": drawn, "p": p, "q": q}


def run(*cycles: dict[str, Any]) -> dict[str, Any]:
    return {
        "model": "m",
        "verify": "recursive",
        "stats": {"drafter": "eagle2"},
        "trace": [{"start": 3, "kept": len(c["path"]) + 1, **c} for c in cycles],
    }


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_a_trace_tells_what_the_rule_saw(
    engine: Engine, tmp_path: Path, temperature: float
) -> None:
    params = SamplingParams(temperature=temperature, seed=5, max_tokens=40, logprobs=20)
    file = write(tmp_path / "t.jsonl", *(recorded(engine, prompt, params) for prompt in PROMPTS))
    (traced,) = read_traces(file)
    expected = summarise(record(engine, PROMPTS, params))
    assert (traced.model, traced.drafter) == ("table", "oracle")
    assert traced.temperature == temperature
    assert traced.setting == f"oracle, coupled, T = {temperature:g}"
    assert (traced.overall.tokens, traced.overall.cycles) == (expected.tokens, expected.cycles)
    for name in ("hit_rate", "alpha", "tokens_per_cycle", "failure_clustering", "entropy"):
        np.testing.assert_allclose(getattr(traced.overall, name), getattr(expected, name), 1e-6)
    for name in ("alphas", "conditional", "marginal"):
        np.testing.assert_allclose(getattr(traced.overall, name), getattr(expected, name), 1e-6)
    assert list(traced.domains) == ["a", "h", "x", "1"]
    assert not traced.sampled and not traced.notes


def test_alpha_of_a_sampled_child_is_estimated_without_bias(tmp_path: Path) -> None:
    p, q = (0.5, 0.3, 0.2), (0.2, 0.4, 0.4)
    told = []
    for token in range(3):
        cycle = {"nodes": [node(-1, "sampled", p[token], q[token])], "path": []}
        (traced,) = read_traces(write(tmp_path / "t.json", run(cycle)))
        assert traced.sampled and "estimated" in traced.notes[0]
        told.append(traced.overall.alpha.value)
    mean = sum(chance * value for chance, value in zip(q, told, strict=True))
    assert mean == pytest.approx(sum(map(min, p, q)))


def test_every_way_of_drawing_has_its_own_alpha(tmp_path: Path) -> None:
    chosen = {"nodes": [node(-1, "chosen", 0.5, None), node(-1, "chosen", 0.25, None)], "path": [1]}
    gumbel = {"nodes": [node(-1, "gumbel", 0.1, 0.4), node(-1, "gumbel", 0.9, 0.1)], "path": []}
    mixed = [node(-1, "top-then-sampled", 0.6, None), node(-1, "top-then-sampled", 0.1, 0.2)]
    below = [*mixed, node(1, "top-then-sampled", 0.3, 0.1)]
    tree = {"nodes": below, "path": [1, 2]}
    (traced,) = read_traces(write(tmp_path / "t.json", run(chosen, gumbel, tree)))
    first, second = traced.overall.alphas
    assert first.value == pytest.approx((0.75 + 0.25 + 0.5) / 3)
    assert second.value == 1.0
    assert traced.overall.tokens_per_cycle.value == pytest.approx(6 / 3)


def test_a_node_behind_the_end_was_not_reached(tmp_path: Path) -> None:
    nodes = [node(-1, "chosen", 1.0, None), node(0, "chosen", 0.0, None)]
    cycle = {"nodes": nodes, "path": [0], "kept": 1}
    (traced,) = read_traces(write(tmp_path / "t.json", run(cycle)))
    assert traced.overall.alphas[0].value == 1.0
    assert math.isnan(traced.overall.alphas[1].value)
    assert positions(traced)[2][1] == "unknown"


def test_what_a_trace_lacks_is_said(engine: Engine, tmp_path: Path) -> None:
    entry = recorded(engine, PROMPTS[0], SamplingParams(max_tokens=12))
    (traced,) = read_traces(write(tmp_path / "t.json", entry))
    notes = " ".join(traced.notes)
    assert "--logprobs 20" in notes and "one prompt has no interval" in notes
    assert math.isnan(traced.overall.entropy.value)
    plain = recorded(engine, PROMPTS[0], SamplingParams(max_tokens=12))
    plain["trace"] = [{"start": 3, "nodes": [], "path": [], "kept": 1}]
    (traced,) = read_traces(write(tmp_path / "p.json", plain))
    assert "nothing was drafted" in traced.notes[0]
    json.dumps([traced.as_dict()], allow_nan=False)
    assert "nothing was drafted" in traces_html([traced])


def test_runs_of_different_settings_are_not_mixed(engine: Engine, tmp_path: Path) -> None:
    entry = recorded(engine, PROMPTS[0], SamplingParams(max_tokens=12))
    other = {**entry, "verify": "block"}
    warm = {**entry, "temperature": 0.7}
    found = read_traces(write(tmp_path / "t.jsonl", entry, other, warm, entry))
    assert [(f.verify, f.overall.prompts) for f in found] == [
        ("coupled", 2),
        ("block", 1),
        ("coupled", 1),
    ]
    assert [f.temperature for f in found] == [0.0, 0.0, 0.7]


def test_alphas_of_the_rule_itself_are_preferred(tmp_path: Path) -> None:
    nodes = [node(-1, "sampled", 0.5, 0.2)]
    told, untold = {"nodes": nodes, "path": [], "alphas": [0.4]}, {"nodes": nodes, "path": []}
    (traced,) = read_traces(write(tmp_path / "t.json", run(told)))
    assert traced.overall.alpha.value == pytest.approx(0.4) and not traced.sampled
    assert traced.temperature is None and traced.setting == "eagle2, recursive"
    (traced,) = read_traces(write(tmp_path / "u.json", run(told, untold)))
    assert traced.overall.alpha.value == pytest.approx(0.7) and traced.sampled


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("", "holds no trace"),
        ("oops", "line 1 is not JSON"),
        ('{"text": "x"}', "has no trace; record one: slipstream generate --trace --json"),
        ('{"trace": [{}]}', "doesn't say which model"),
        ('{"trace": [{}], "model": "m", "verify": "v"}', "doesn't say which drafter"),
        (
            '{"trace": [{"start": 1}], "model": "m", "verify": "v", "stats": {"drafter": "d"}}',
            "damaged trace (KeyError: 'nodes')",
        ),
        (
            '{"trace": [{}], "model": "m", "verify": "v", "stats": {"drafter": "d"}, '
            '"temperature": "warm"}',
            "has temperature 'warm', not a number",
        ),
        ('{"trace": []}\n\n{"trace": []}', "holds no trace"),
        ("[3]", "entry 1 has no trace"),
    ],
)
def test_a_file_without_traces_is_refused(tmp_path: Path, content: str, words: str) -> None:
    file = tmp_path / "t.jsonl"
    file.write_text(content)
    with pytest.raises(InvalidInput) as refused:
        read_traces(file)
    assert words in str(refused.value)
