"""Plain decoding as a drafter: empty drafts, so that the loop has no special case."""

from __future__ import annotations

from collections.abc import Sequence

from slipstream.drafters.base import Budget, Stateless
from slipstream.types import Draft, DrawMethod, SequenceState


class NoDrafter(Stateless):
    """Never guesses."""

    name = "none"

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """An empty draft per sequence."""
        return [Draft() for _ in sequences]
