"""A small engine to profile: the table model, and drafters that behave in known ways."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from slipstream import Engine
from slipstream.drafters.base import Budget, Stateless
from slipstream.models.tokenizer import Tokenizer
from slipstream.types import Draft, DrawMethod, PointMass, SequenceState
from tests.engine.conftest import make_byte_tokenizer
from tests.engine.table_model import TableModel


@pytest.fixture(scope="session")
def byte_tokenizer() -> Tokenizer:
    return make_byte_tokenizer(eos=False)


class Never(Stateless):
    """A drafter that never has a guess."""

    name = "never"

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        return [Draft() for _ in sequences]


class Oracle(Stateless):
    """Knows the greedy text; wrong at every seventh position of it.

    Args:
        model: the target.
    """

    name = "oracle"

    def __init__(self, model: TableModel) -> None:
        self._model = model

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        return [self._draft(s, b.depth) for s, b in zip(sequences, budgets, strict=True)]

    def _draft(self, sequence: SequenceState, depth: int) -> Draft:
        tokens = list(sequence.tokens)
        for _ in range(depth):
            best = int(self._model.logits(tokens[-2], tokens[-1]).argmax())
            if len(tokens) % 7 == 0:
                best = (best + 1) % self._model.info.vocab_size
            tokens.append(best)
        drafted = tokens[sequence.length :]
        return Draft.chain(drafted, [PointMass()] * len(drafted))


@pytest.fixture
def engine(byte_tokenizer: Tokenizer) -> Engine:
    model = TableModel(256, seed=3, spread=2.0)
    return Engine(model, tokenizer=byte_tokenizer, drafter=Oracle(model), k=12)
