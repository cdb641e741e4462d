"""The token that a rule adds itself: a sample of what the drafted tokens left over.

Every rule draws it with the plain sampler's noise of the position at which it stands, so without a
draft all rules emit the plain sampler's tokens.
"""

from __future__ import annotations

from slipstream.sampling.noise import CycleNoise, Stream
from slipstream.sampling.race import race
from slipstream.sampling.rows import ProcessedRows
from slipstream.types import Array
from slipstream.verification.base import TargetRows


def emit(weights_V: Array, probs_V: Array, stream: Stream) -> int:
    """Draw from ``weights_V``, or from ``probs_V`` where no weight is positive.

    The residual [p - q]+ vanishes only if p and q agree to the last bit, and then the rejection
    that asks for it had probability 0 but for rounding: p is as good.
    """
    return (race(weights_V, stream) or race(probs_V, stream))[0]


def pick(probs: TargetRows, row: int, noise: CycleNoise, offset: int) -> int:
    """The plain sampler's token after a row: what :func:`emit` draws from all of its mass."""
    if isinstance(probs, ProcessedRows):
        return probs.pick(row, noise, offset)
    return emit(probs[row], probs[row], noise.pick(offset))
