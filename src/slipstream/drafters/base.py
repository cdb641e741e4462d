"""What a drafter must do: guess a tree for each sequence, and learn what became of it.

``propose`` is called for a batch of sequences with one budget each; ``observe`` brings the drafter
level with what was committed, after full acceptance and after cycles without a draft as well. A
drafter never sees the target, the rule or the verification randomness. It draws its tokens the way
it is told (``DrawMethod``) from the request's own counter-based noise, and writes down the very
distribution that it drew from.

Shape letters: T committed tokens, H the target's hidden width.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from slipstream.models.base import NO_FEATURES, FeatureRequest, ForwardOutput
from slipstream.types import Draft, DrawMethod, SequenceState


@dataclass(frozen=True, kw_only=True)
class Budget:
    """What one sequence may draft in this cycle.

    Args:
        depth: longest path, 0 for no draft (the drafter still has to stay level).
        nodes: most nodes in the tree; no more than ``depth`` make it a chain.
        floor: a chain may stop where its chance of being accepted, as far as the drafter can tell,
            is below this; 0 asks for the whole depth.
    """

    depth: int
    nodes: int
    floor: float = 0.0


@dataclass(frozen=True)
class Observation:
    """What a cycle committed for one sequence.

    Args:
        sequence: its state, the new tokens already appended.
        emitted: how many tokens the cycle appended (at least one). All but the last were fed to
            the target in this cycle, after the cycle's root.
        path: accepted nodes of the draft. Equal to the drafted path up to emitted - 1 tokens.
        features: target features of the cycle's root and the accepted nodes, one row each, as
            requested; None if the drafter asked for none.
    """

    sequence: SequenceState
    emitted: int
    path: tuple[int, ...]
    features: ForwardOutput | None = None


class Drafter(Protocol):
    """A source of cheap guesses."""

    @property
    def name(self) -> str:
        """The registered name, for statistics."""
        ...

    @property
    def features(self) -> FeatureRequest:
        """Target features that ``begin`` and ``observe`` need."""
        ...

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """A request starts; features are those of its prompt without the last token."""
        ...

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """One draft per sequence, within its budget; an empty draft is always allowed."""
        ...

    def observe(self, observations: Sequence[Observation]) -> None:
        """Take note of what was committed."""
        ...

    def end(self, sequence: SequenceState) -> None:
        """A request has ended; forget it."""
        ...


class Stateless:
    """Optional base with the answers of a drafter that keeps no state and needs no features."""

    @property
    def features(self) -> FeatureRequest:
        return NO_FEATURES

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """Nothing to prepare."""

    def observe(self, observations: Sequence[Observation]) -> None:
        """Nothing to learn."""

    def end(self, sequence: SequenceState) -> None:
        """Nothing to forget."""
