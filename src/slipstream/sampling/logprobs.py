"""Log-probabilities to report: the target's own, before any processor.

Knows nothing of sampling: a token that a processor made certain still has the model's probability
here. V vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from array_api_compat import array_namespace

from slipstream.sampling.selection import kth_largest
from slipstream.types import Array


@dataclass(frozen=True)
class TokenLogprob:
    """What the target thought of one emitted token.

    Args:
        token: its id.
        logprob: natural logarithm of its probability.
        top: the most likely tokens and theirs, best first, ties to the lowest id.
    """

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        top = [{"token": token, "logprob": logprob} for token, logprob in self.top]
        return {"token": self.token, "logprob": self.logprob, "top": top}


def log_softmax(logits_V: Array) -> Array:
    """(V,) float32 log-probabilities of (V,) float32 logits."""
    xp = array_namespace(logits_V)
    shifted_V = logits_V - xp.max(logits_V)
    return shifted_V - xp.log(xp.sum(xp.exp(shifted_V)))


def token_logprob(logits_V: Array, token: int, top: int) -> TokenLogprob:
    """Report a token beside the ``top`` most likely ones.

    Args:
        logits_V: (V,) float32, unprocessed.
        token: the emitted id.
        top: how many alternatives; more than V means all.
    """
    xp = array_namespace(logits_V)
    logprobs_V = log_softmax(logits_V)
    count = min(top, logprobs_V.shape[0])
    best: list[tuple[int, float]] = []
    if count:
        (ids,) = xp.nonzero(logprobs_V >= kth_largest(logprobs_V, count))
        pairs = zip(ids.tolist(), logprobs_V[ids].tolist(), strict=True)
        best = sorted(pairs, key=lambda pair: (-pair[1], pair[0]))[:count]
    return TokenLogprob(token, float(logprobs_V[token]), tuple(best))
