"""Dynamic trees in the whole engine, with the real noise, against the target's exact law.

As in tests/engine/test_law.py: the target is a table, the drafter a table roughly like it, and the
counts of tokens after each context are compared with the law that can be written down. The bias of
EAGLE-2's re-ranking on sampled children, the mistake that the level-wise tree avoids, is found by
the same measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pytest

from slipstream import Engine, SamplingParams
from slipstream.drafters.base import Budget, Stateless
from slipstream.drafters.dynamic_tree import RerankedGrowth, dynamic_growth
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.models.tokenizer import Tokenizer
from slipstream.types import Draft, DrawMethod, SequenceState
from tests.engine.conftest import make_byte_tokenizer
from tests.engine.table_model import CLASSES, TableModel
from tests.exactness.chi_square import Fit, fit

SIZE = 5
TEMPERATURE = 0.8
TEXTS, LENGTH = 32, 150

Run = Callable[[TreeBuilder, Budget, Callable[[Growth], None]], Draft]


@pytest.fixture(scope="module")
def byte_tokenizer() -> Tokenizer:
    return make_byte_tokenizer()


def exact(builder: TreeBuilder, budget: Budget, run: Callable[[Growth], None]) -> Draft:
    growth = dynamic_growth(builder, budget, 3)
    run(growth)
    return growth.draft()


def biased(builder: TreeBuilder, budget: Budget, run: Callable[[Growth], None]) -> Draft:
    """Samples, and keeps the likeliest of them: what the builder refuses to do."""
    builder.draw = "gumbel"
    growth = RerankedGrowth(builder, budget, 3)
    builder.draw = "sampled"
    run(growth)
    builder.draw = "gumbel"
    # Re-ranked by what they turned out to be, which is the point.
    for node, (token, parent) in enumerate(zip(builder.tokens, builder.parents, strict=True)):
        chance = builder.receipt(parent).probs[token]  # type: ignore[union-attr]
        builder.logs[node] = builder.log(parent) + float(np.log(chance))
    ranked = sorted((-log, node) for node, log in enumerate(builder.logs))
    growth._best = ranked[: budget.nodes]
    return growth.draft()


class TableTrees(Stateless):
    """Grows trees from a table's logits."""

    name = "table-trees"
    trees = True

    def __init__(self, table: TableModel, grow: Run) -> None:
        self._table, self._grow = table, grow

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        return [self._draft(s, b, draw) for s, b in zip(sequences, budgets, strict=True)]

    def _draft(self, sequence: SequenceState, budget: Budget, draw: DrawMethod) -> Draft:
        builder = TreeBuilder(sequence, draw, TrimmedVocabulary(SIZE))

        def run(growth: Growth) -> None:
            while growth.frontier:
                texts = [sequence.tokens + builder.prefix(node) for node in growth.frontier]
                growth.grow([self._table.logits(text[-2], text[-1]) for text in texts])

        return self._grow(builder, budget, run) if budget.depth else Draft()


def measure(tokenizer: Tokenizer, verify: str, grow: Run) -> Fit:
    target = TableModel(SIZE, seed=11, spread=0.7)
    table = TableModel(SIZE, seed=12, spread=0.7)
    table.table = target.table + 0.7 * table.table
    engine = Engine(
        target, tokenizer=tokenizer, drafter=TableTrees(table, grow), k=3, nodes=6, verify=verify
    )
    params = [
        SamplingParams(temperature=TEMPERATURE, seed=seed, max_tokens=LENGTH)
        for seed in range(TEXTS)
    ]
    counts = {(c, last): np.zeros(SIZE) for c in range(CLASSES) for last in range(SIZE)}
    for result in engine.generate([[0, 1]] * TEXTS, params):
        tokens = [0, 1, *result.token_ids]
        for before, last, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
            counts[before % CLASSES, last][token] += 1
    scaled = target.table.astype(np.float64) / TEMPERATURE
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    probs = weights / weights.sum(axis=-1, keepdims=True)
    visited = {c: n for c, n in counts.items() if n.sum() * probs[c].min() >= 5}
    return fit(visited, lambda context: probs[context])


@pytest.mark.parametrize("verify", ["recursive", "greedy_siblings"])
def test_dynamic_trees_write_the_targets_text(byte_tokenizer: Tokenizer, verify: str) -> None:
    result = measure(byte_tokenizer, verify, exact)
    assert not result.rejected
    assert result.detectable(power=0.9) <= 0.09


def test_re_ranked_samples_do_not(byte_tokenizer: Tokenizer) -> None:
    assert measure(byte_tokenizer, "recursive", biased).rejected
