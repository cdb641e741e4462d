"""One request on its way: tokens, randomness, text, statistics, and when it ends.

End events are decided at the earliest committed token: an end token, a stop string that this token
completes, the requested length, the end of the context, in this order where they coincide. Tokens
of an accepted path behind the event are dropped, and nothing about the request counts them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, TypeAlias

from slipstream.engine.output_text import OutputText
from slipstream.engine.stats import RequestStats
from slipstream.engine.trace import Trace
from slipstream.errors import SlipstreamError
from slipstream.models.tokenizer import Tokenizer
from slipstream.sampling.logprobs import TokenLogprob, token_logprob
from slipstream.sampling.noise import Noise
from slipstream.types import ROOT, Array, Draft, Origin, SequenceState, Verdict

if TYPE_CHECKING:
    from slipstream.engine.adaptive import Notes

FinishReason: TypeAlias = Literal["stop", "length", "context", "error"]
"""``stop`` an end token or stop string, ``length`` max_tokens, ``context`` the model's context is
full, ``error`` the request failed."""


@dataclass(frozen=True)
class Piece:
    """A stretch of output that has become certain.

    Args:
        text: new text; pieces concatenate to the whole text.
        token_ids: the tokens since the last piece, at least one except in a last flush.
        origins: where each of these tokens came from.
    """

    text: str
    token_ids: tuple[int, ...]
    origins: tuple[Origin, ...]


@dataclass
class Request:
    """A running request.

    Args:
        state: tokens, parameters and seed.
        tokenizer: decodes the output.
        end_tokens: token ids that end it.
        max_context: most tokens that its sequence may hold.
        trace: told of every verdict.
        notes: what an adaptive controller keeps about it.
    """

    state: SequenceState
    tokenizer: Tokenizer
    end_tokens: frozenset[int]
    max_context: int
    trace: Trace | None = None
    notes: Notes | None = None
    handle: int | None = None
    stats: RequestStats = field(default_factory=RequestStats)
    finish_reason: FinishReason | None = None
    error: SlipstreamError | None = None
    origins: list[Origin] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.noise = Noise(self.state.seed)
        self.output = OutputText(self.tokenizer, self.state.params.stop)
        self._shown = 0

    @property
    def finished(self) -> bool:
        return self.finish_reason is not None

    @property
    def room(self) -> int:
        """Most draft tokens that could be of use: one more token always comes from the target."""
        state = self.state
        length = len(state.tokens)
        left = state.params.max_tokens - (length - state.prompt_length)
        return max(0, min(left - 1, self.max_context - length))

    def emit(self, draft: Draft, verdict: Verdict, logits_RV: Array) -> int:
        """Append a verdict's tokens up to the earliest end event; returns how many were kept."""
        wanted = self.state.params.logprobs
        drafted = draft.tree.tokens
        kept, parent = 0, ROOT
        for node in (*verdict.path, None):
            token = verdict.token if node is None else drafted[node]
            if wanted is not None:
                self.logprobs.append(token_logprob(logits_RV[parent + 1], token, wanted))
            self._append(token, verdict.origin if node is None else "draft")
            kept += 1
            if node is None or self.finish_reason is not None:
                break
            parent = node
        self.stats.add_cycle(draft, verdict, kept)
        return kept

    def fail(self, error: SlipstreamError) -> None:
        """End the request with an error; what was emitted before stays."""
        self.error = error
        self._end("error")

    def take_pieces(self) -> list[Piece]:
        """The pieces that have become certain since the last call."""
        pieces, self.pieces = self.pieces, []
        return pieces

    def _append(self, token: int, origin: Origin) -> None:
        state, params = self.state, self.state.params
        state.tokens.append(token)
        self.origins.append(origin)
        if token in self.end_tokens:
            self._end("stop")
            return
        text = self.output.push(token)
        if text:
            self._show(text)
        length = len(state.tokens)
        if self.output.stopped:
            self._end("stop")
        elif length - state.prompt_length >= params.max_tokens:
            self._end("length")
        elif length >= self.max_context:
            self._end("context")

    def _end(self, reason: FinishReason) -> None:
        self.finish_reason = reason
        text = self.output.flush()
        if self.output.stopped and reason in ("length", "context"):
            self.finish_reason = "stop"
        self._show(text, last=True)

    def _show(self, text: str, *, last: bool = False) -> None:
        tokens = self.state.tokens[self.state.prompt_length + self._shown :]
        if text or (last and tokens):
            self.pieces.append(Piece(text, tuple(tokens), tuple(self.origins[self._shown :])))
            self._shown += len(tokens)
