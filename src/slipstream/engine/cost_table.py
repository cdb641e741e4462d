"""What cycles cost, as measured: the table that a profile writes and a controller reads.

Seconds by the rows of a pass and by the depth asked of a drafter. Knows no clock and no model.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from slipstream.errors import InvalidInput


@dataclass(frozen=True)
class CostTable:
    """Cost of a cycle; between entries it is a line, beyond the last the last line goes on.

    Args:
        rows: rows of a pass, increasing, from 1 on.
        cycle_seconds: pass and everything around it but the drafting, for that many rows; positive,
            not falling.
        depths: depths asked of the drafter, increasing, from 1 on; empty if nothing drafts.
        draft_seconds: time to draft that deep; not falling.

    Raises:
        InvalidInput: anything else.
    """

    rows: tuple[int, ...]
    cycle_seconds: tuple[float, ...]
    depths: tuple[int, ...] = ()
    draft_seconds: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        _check("rows", self.rows, "cycle_seconds", self.cycle_seconds)
        _check("depths", self.depths, "draft_seconds", self.draft_seconds)
        if not self.rows or self.cycle_seconds[0] <= 0:
            raise InvalidInput("cycle_seconds must have a positive first entry, for one row")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> CostTable:
        """Build from a settings file's dictionary.

        Raises:
            InvalidInput: a field that is missing, unknown or no list of numbers.
        """
        fields = ("rows", "cycle_seconds", "depths", "draft_seconds")
        if not isinstance(values, Mapping) or set(values) != set(fields):
            raise InvalidInput(f"a cost table has the fields {', '.join(fields)}")
        for name in fields:
            if not isinstance(values[name], Sequence) or isinstance(values[name], str):
                raise InvalidInput(f"{name} of a cost table must be a list of numbers")
        return cls(*(tuple(values[name]) for name in fields))

    def cycle(self, rows: int) -> float:
        """Seconds of a cycle whose pass has this many rows, drafting excluded."""
        return _interpolate(self.rows, self.cycle_seconds, rows)

    def draft(self, depth: int) -> float:
        """Seconds to draft this deep; 0 for no draft."""
        if depth == 0 or not self.depths:
            return 0.0
        return _interpolate(self.depths, self.draft_seconds, depth)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "rows": list(self.rows),
            "cycle_seconds": list(self.cycle_seconds),
            "depths": list(self.depths),
            "draft_seconds": list(self.draft_seconds),
        }


def _interpolate(sizes: Sequence[int], seconds: Sequence[float], size: int) -> float:
    if len(sizes) == 1 or size <= sizes[0]:
        return seconds[0]
    i = min(bisect_right(sizes, size), len(sizes) - 1)
    low, high = sizes[i - 1], sizes[i]
    return seconds[i - 1] + (seconds[i] - seconds[i - 1]) * (size - low) / (high - low)


def _check(sizes_name: str, sizes: Sequence[int], times_name: str, times: Sequence[float]) -> None:
    numbers = [*sizes, *times]
    if len(sizes) != len(times):
        raise InvalidInput(f"{sizes_name} and {times_name} must be of one length")
    if any(isinstance(n, bool) or not isinstance(n, (int, float)) for n in numbers):
        raise InvalidInput(f"{sizes_name} and {times_name} must hold numbers")
    if not all(math.isfinite(n) and n >= 0 for n in numbers):
        raise InvalidInput(f"{sizes_name} and {times_name} must be finite and >= 0")
    if sizes and (sizes[0] != 1 or any(a >= b for a, b in pairwise(sizes))):
        raise InvalidInput(f"{sizes_name} must increase from 1, not {list(sizes)}")
    if any(a > b for a, b in pairwise(times)):
        raise InvalidInput(f"{times_name} must not fall")
