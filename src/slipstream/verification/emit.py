"""The token that a rule adds itself: a sample of what the drafted tokens left over.

Every rule draws it with the plain sampler's noise of the position at which it stands, so without a
draft all rules emit the plain sampler's tokens.
"""

from __future__ import annotations

from slipstream.sampling.noise import Stream
from slipstream.sampling.race import race
from slipstream.types import Array


def emit(weights_V: Array, probs_V: Array, stream: Stream) -> int:
    """Draw from ``weights_V``, or from ``probs_V`` where no weight is positive.

    The residual [p - q]+ vanishes only if p and q agree to the last bit, and then the rejection
    that asks for it had probability 0 but for rounding: p is as good.
    """
    return (race(weights_V, stream) or race(probs_V, stream))[0]
