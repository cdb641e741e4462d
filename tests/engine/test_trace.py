"""A trace holds what happened: the drafted tree, its probabilities, the walk, and the end."""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import pytest
from rich.console import Console

from slipstream import Engine, SamplingParams
from slipstream.cli.trace import render_cycle
from slipstream.drafters.base import Budget, Stateless
from slipstream.engine.trace import Trace, TracedCycle
from slipstream.models.tokenizer import Tokenizer
from slipstream.types import (
    ROOT,
    Draft,
    DrawMethod,
    PointMass,
    SequenceState,
    TokenTree,
    TopThenSampled,
)
from tests.engine.table_model import TableModel

SIZE = 257


class Fixed(Stateless):
    """Drafts the same tree in every cycle: the target's two best first tokens, and one below."""

    name = "fixed"
    trees = True

    def __init__(self, target: TableModel, kind: type = PointMass) -> None:
        self._target, self._kind = target, kind

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        return [self._tree(sequence) for sequence in sequences]

    def _tree(self, sequence: SequenceState) -> Draft:
        order = np.argsort(-self._target.logits(sequence.tokens[-2], sequence.tokens[-1]))
        best, second = int(order[0]), int(order[1])
        below = int(self._target.logits(sequence.tokens[-1], best).argmin())
        probs = np.zeros(SIZE, np.float32)
        probs[second] = 1.0
        first = TopThenSampled(probs) if self._kind is TopThenSampled else PointMass()
        tree = TokenTree((best, second, below, below), (ROOT, ROOT, 0, 1))
        return Draft(tree, (first, PointMass(), PointMass(), None, None))


def traced(
    tokenizer: Tokenizer, verify: str, kind: type = PointMass, **params: object
) -> tuple[list[TracedCycle], tuple[int, ...]]:
    target = TableModel(SIZE, seed=1, spread=3.0)
    engine = Engine(target, tokenizer=tokenizer, drafter=Fixed(target, kind), k=2, verify=verify)
    trace = Trace(tokenizer)
    settings = SamplingParams(**{"max_tokens": 12, "seed": 1, "ignore_eos": True} | params)
    stream = engine.stream([65, 66, 67], settings, trace=trace)
    for _ in stream:
        pass
    assert json.loads(json.dumps(trace.as_dict()))["cycles"]
    return trace.cycles, stream.result.token_ids


def test_the_cycles_spell_the_output(byte_tokenizer: Tokenizer) -> None:
    cycles, tokens = traced(byte_tokenizer, "coupled")
    spelled: list[int] = []
    for cycle in cycles:
        assert cycle.start == 3 + len(spelled)
        emitted = [*(cycle.nodes[node].token for node in cycle.path), cycle.token]
        spelled += emitted[: cycle.kept]
    assert tuple(spelled) == tokens


def test_greedy_fates_and_probabilities(byte_tokenizer: Tokenizer) -> None:
    cycles, _ = traced(byte_tokenizer, "coupled")
    for cycle in cycles[:-1]:
        assert [node.fate for node in cycle.nodes] == [
            "accepted",
            "rejected",
            "rejected",
            "unreached",
        ]
        assert [node.p for node in cycle.nodes] == [1.0, 0.0, 0.0, None]
        assert {node.q for node in cycle.nodes} == {None}
        assert (cycle.path, cycle.origin, cycle.p, cycle.kept) == ((0,), "residual", 1.0, 2)


def test_only_a_sampled_child_has_a_q(byte_tokenizer: Tokenizer) -> None:
    cycles, _ = traced(byte_tokenizer, "greedy_siblings", TopThenSampled, temperature=1.0)
    for cycle in cycles:
        assert [node.q for node in cycle.nodes] == [None, 1.0, None, None]
        assert cycle.nodes[0].drawn == "top-then-sampled" and cycle.nodes[2].drawn == "chosen"
        assert 0.0 < cycle.p <= 1.0


def test_what_lies_behind_the_end_is_dropped(byte_tokenizer: Tokenizer) -> None:
    cycles, tokens = traced(byte_tokenizer, "coupled")
    end = cycles[0].nodes[0].token
    cycles, tokens = traced(byte_tokenizer, "coupled", stop_token_ids=(end,))
    assert tokens == (end,) and (cycles[0].kept, cycles[0].path) == (1, (0,))
    picture = drawn(cycles[0])
    assert "residual" not in picture and "✓" in picture


def test_a_plain_cycle_is_a_root_and_a_bonus(byte_tokenizer: Tokenizer) -> None:
    target = TableModel(SIZE, seed=1, spread=3.0)
    engine = Engine(target, tokenizer=byte_tokenizer, drafter="none", k=0)
    trace = Trace(byte_tokenizer)
    for _ in engine.stream([65], SamplingParams(max_tokens=2, ignore_eos=True), trace=trace):
        pass
    assert [(len(c.nodes), c.origin, c.kept) for c in trace.cycles] == [(0, "bonus", 1)] * 2


@pytest.mark.parametrize("verify", ["coupled", "recursive"])
def test_the_picture_shows_tree_path_and_rejections(byte_tokenizer: Tokenizer, verify: str) -> None:
    cycles, _ = traced(byte_tokenizer, verify)
    lines = drawn(cycles[0]).splitlines()
    assert "'C'" in lines[0] and "4 drafted, 1 accepted" in lines[0]
    marks = ["".join(mark for mark in "✓✗·+" if f"{mark} '" in line) for line in lines[1:]]
    assert marks == ["✓", "✗", "+", "✗", "·"]
    assert "p 1" in lines[1] and "chosen" in lines[1] and "residual" in lines[3]


def drawn(cycle: TracedCycle) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(render_cycle(cycle))
    return capture.get()
