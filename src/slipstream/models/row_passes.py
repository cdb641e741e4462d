"""More rows than one pass takes, in several: the rows of a pass become pending rows of the next.

A row sees its own ancestors only, so where a backend's rows don't depend on their company, neither
do they depend on where the cut is. R rows, L rows with logits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from slipstream.models.base import ForwardOutput, Rows
from slipstream.types import Array


def in_passes(rows: Rows, most: int, forward: Callable[[Rows], ForwardOutput]) -> ForwardOutput:
    """``forward`` of all rows, at most ``most`` at a time; arrays are numpy's."""
    count = len(rows)
    if count <= most:
        return forward(rows)
    parts = [forward(_part(rows, start, start + most)) for start in range(0, count, most)]
    return ForwardOutput(
        logits=_joined([part.logits for part in parts]),
        features=None if parts[0].features is None else _joined([p.features for p in parts]),
        layer_features={
            layer: _joined([part.layer_features[layer] for part in parts])
            for layer in parts[0].layer_features
        },
    )


def _part(rows: Rows, start: int, end: int) -> Rows:
    return Rows(
        sequences=rows.sequences[start:end],
        tokens=rows.tokens[start:end],
        parents=rows.parents[start:end],
        wants_logits=None if rows.wants_logits is None else rows.wants_logits[start:end],
        vectors=None if rows.vectors is None else rows.vectors[start:end],
    )


def _joined(parts: list[Array]) -> Array:
    return np.concatenate(parts)
