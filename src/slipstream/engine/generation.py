"""What a finished request gives back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from slipstream.engine.request import FinishReason, Request
from slipstream.engine.stats import RequestStats
from slipstream.errors import SlipstreamError
from slipstream.sampling.logprobs import TokenLogprob
from slipstream.types import Origin


@dataclass(frozen=True, kw_only=True)
class Generation:
    """A finished generation.

    Args:
        text: the output, without a stop string or end token.
        token_ids: the emitted tokens, an end token included.
        origins: per token, ``draft``, ``residual`` or ``bonus``.
        finish_reason: ``stop``, ``length``, ``context`` or ``error``.
        stats: what it cost and gained.
        seed: the seed that reproduces it.
        verify: the verification rule.
        exact: whether that rule keeps the target's distribution.
        drafter: the drafter's name.
        logprobs: the target's log-probabilities per token, if asked for.
        error: why it failed, with ``finish_reason == "error"``.
    """

    text: str
    token_ids: tuple[int, ...]
    origins: tuple[Origin, ...]
    finish_reason: FinishReason
    stats: RequestStats
    seed: int
    verify: str
    exact: bool
    drafter: str
    logprobs: tuple[TokenLogprob, ...] | None = None
    error: SlipstreamError | None = None

    @classmethod
    def of(cls, request: Request, *, verify: str, exact: bool, drafter: str) -> Generation:
        """The result of a finished request."""
        assert request.finish_reason is not None
        wanted = request.state.params.logprobs is not None
        return cls(
            text=request.output.text,
            token_ids=tuple(request.state.output),
            origins=tuple(request.origins),
            finish_reason=request.finish_reason,
            stats=request.stats,
            seed=request.state.seed,
            verify=verify,
            exact=exact,
            drafter=drafter,
            logprobs=tuple(request.logprobs) if wanted else None,
            error=request.error,
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        values: dict[str, Any] = {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "origins": list(self.origins),
            "finish_reason": self.finish_reason,
            "seed": self.seed,
            "stats": {
                **self.stats.as_dict(),
                "verify": self.verify,
                "exact": self.exact,
                "drafter": self.drafter,
            },
        }
        if self.logprobs is not None:
            values["logprobs"] = [entry.as_dict() for entry in self.logprobs]
        if self.error is not None:
            values["error"] = str(self.error)
        return values
