"""The whole engine against the target's exact law: model, drafter, processors, rule, cache, batch.

The target is a table, so the law of its processed text can be written down; a draft model that is
only roughly like it drafts. The counts of tokens after each context are compared with that law as
in tests/exactness/chi_square.py: a law that is off by 0.04 in total variation would be found with
probability 0.9, and the lossy rule is. (The rules alone are tested to 0.02, without an engine.)
"""

from __future__ import annotations

import numpy as np
import pytest

from slipstream import Engine, SamplingParams
from slipstream.drafters.draft_model import DraftModel
from slipstream.drafters.vocabulary import SharedVocabulary
from slipstream.models.tokenizer import Tokenizer
from tests.engine.table_model import CLASSES, TableModel
from tests.exactness.chi_square import Fit, fit

SIZE = 4
TEMPERATURE = 0.8
TEXTS, LENGTH = 96, 200
FEW = 32


def law(target: TableModel) -> dict[tuple[int, int], np.ndarray]:
    """(class of the token before, last token) -> float64 law of the next token."""
    scaled = target.table.astype(np.float64) / TEMPERATURE
    weights = np.exp(scaled - scaled.max(axis=-1, keepdims=True))
    probs = weights / weights.sum(axis=-1, keepdims=True)
    return {(c, last): probs[c, last] for c in range(CLASSES) for last in range(SIZE)}


def measure(tokenizer: Tokenizer, verify: str, texts: int) -> Fit:
    target = TableModel(SIZE, seed=11, spread=0.7)
    model = TableModel(SIZE, seed=12, spread=0.7)
    model.table = target.table + 0.7 * model.table
    drafter = DraftModel(model, SharedVocabulary(SIZE, SIZE))
    engine = Engine(target, tokenizer=tokenizer, drafter=drafter, k=3, verify=verify)
    params = [
        SamplingParams(temperature=TEMPERATURE, seed=seed, max_tokens=LENGTH)
        for seed in range(texts)
    ]
    results = engine.generate([[0, 1]] * texts, params)
    counts = {context: np.zeros(SIZE) for context in law(target)}
    for result in results:
        tokens = [0, 1, *result.token_ids]
        for before, last, token in zip(tokens, tokens[1:], tokens[2:], strict=False):
            counts[before % CLASSES, last][token] += 1
    assert 0.2 < results[0].stats.accepted / LENGTH < 0.75
    # The lossy rule hardly visits some contexts; the others are enough to convict it.
    visited = {c: n for c, n in counts.items() if n.sum() * law(target)[c].min() >= 5}
    return fit(visited, lambda context: law(target)[context])


@pytest.mark.parametrize("verify", ["rejection", "block", "coupled"])
def test_the_engine_writes_the_targets_text(byte_tokenizer: Tokenizer, verify: str) -> None:
    result = measure(byte_tokenizer, verify, TEXTS)
    assert not result.rejected
    assert result.detectable(power=0.9) <= 0.04


def test_the_naive_rule_does_not(byte_tokenizer: Tokenizer) -> None:
    assert measure(byte_tokenizer, "argmax_match", FEW).rejected
