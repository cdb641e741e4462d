"""A prompt in chunks: the same passes that decode, committed as they go, all of them or none.

Knows no backend but its protocol; arrays are numpy's. T tokens, H hidden, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from slipstream.models.base import FeatureRequest, ForwardOutput, Rows, TargetModel
from slipstream.types import Array


def prefill_in_chunks(
    target: TargetModel,
    sequence: int,
    tokens: Sequence[int],
    features: FeatureRequest,
    chunk: int,
) -> ForwardOutput:
    """See :meth:`slipstream.models.base.TargetModel.prefill`; drops pending rows first.

    Args:
        chunk: rows per pass, which bounds the memory of a pass.

    Returns:
        No logits (0, V), and features (T, H) as requested.
    """
    before = target.length(sequence)
    target.commit(sequence, [])
    none = np.empty((0, target.info.hidden_size), np.float32)
    last: list[Array] = [none]
    layers: dict[int, list[Array]] = {layer: [none] for layer in features.layers}
    try:
        for start in range(0, len(tokens), chunk):
            rows = Rows.chain(sequence, tokens[start : start + chunk], logits=False)
            output = target.forward(rows, features)
            target.commit(sequence, range(len(rows)))
            if features.last:
                last.append(output.features)
            for layer, parts in layers.items():
                parts.append(output.layer_features[layer])
    except BaseException:  # an interrupt too: a half prompt must not pass for a prompt
        target.truncate(sequence, before)
        raise
    return ForwardOutput(
        logits=np.empty((0, target.info.vocab_size), np.float32),
        features=np.concatenate(last) if features.last else None,
        layer_features={layer: np.concatenate(parts) for layer, parts in layers.items()},
    )
