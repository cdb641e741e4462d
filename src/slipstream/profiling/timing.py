"""Drafters that measure: one replays a script with drafts of set lengths, one times another.

The replay drafter sizes the passes of a running engine: it drafts known tokens, which all are
accepted, or wrong ones, which all are rejected, and looks at the clock whenever a cycle begins. So
a cycle is timed as a whole, verification and bookkeeping included. They satisfy the drafters'
protocol without knowing any drafter.
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from slipstream.types import Draft, PointMass, SequenceState


class Replay:
    """Drafts what a script says, as long as a schedule says.

    Args:
        features: the protocol's word for none, from a drafter that needs none.
        lengths: of the drafts, cycle by cycle.
        vocabulary: how many tokens the model knows.
        script: the tokens that follow the prompt; None drafts tokens that are hardly ever right.

    ``begun`` has the time at which each cycle began, ``rows`` the rows of its pass, ``committed``
    the tokens that all sequences had by then.
    """

    name = "replay"

    def __init__(
        self,
        features: Any,
        lengths: Sequence[int],
        *,
        vocabulary: int,
        script: Sequence[int] | None = None,
    ) -> None:
        self.features = features
        self._lengths = iter(lengths)
        self._script = script
        self._vocabulary = vocabulary
        self.begun: list[float] = []
        self.rows: list[int] = []
        self.committed: list[int] = []

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Any], draw: str
    ) -> list[Draft]:
        self.begun.append(perf_counter())
        self.committed.append(sum(sequence.length for sequence in sequences))
        length = next(self._lengths, 0)
        drafts = [
            self._draft(s, min(length, b.depth)) for s, b in zip(sequences, budgets, strict=True)
        ]
        self.rows.append(sum(len(draft) + 1 for draft in drafts))
        return drafts

    def _draft(self, sequence: SequenceState, length: int) -> Draft:
        if self._script is None:
            newest = sequence.tokens[-1]
            tokens = [(newest + 1 + i) % self._vocabulary for i in range(length)]
        else:
            done = sequence.length - sequence.prompt_length
            tokens = list(self._script[done : done + length])
        return Draft.chain(tokens, [PointMass()] * len(tokens))

    def begin(self, sequence: SequenceState, features: Any) -> None: ...

    def observe(self, observations: Sequence[Any]) -> None: ...

    def end(self, sequence: SequenceState) -> None: ...


class Timed:
    """Another drafter, with a watch on what it does for a cycle: proposing and observing.

    Args:
        drafter: the one that works.

    ``seconds`` has what each cycle took, ``allowed`` how deep it might draft.
    """

    def __init__(self, drafter: Any) -> None:
        self._drafter = drafter
        self.seconds: list[float] = []
        self.allowed: list[int] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._drafter, name)

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Any], draw: Any
    ) -> list[Draft]:
        begun = perf_counter()
        drafts: list[Draft] = self._drafter.propose(sequences, budgets, draw)
        self.seconds.append(perf_counter() - begun)
        self.allowed.append(max(budget.depth for budget in budgets))
        return drafts

    def observe(self, observations: Sequence[Any]) -> None:
        begun = perf_counter()
        self._drafter.observe(observations)
        self.seconds[-1] += perf_counter() - begun
