"""A small language model drafts for a large one (Leviathan 2211.17192, Chen 2302.01318).

Each level of the chains is one pass of the draft model over all sequences. Its cache holds the
committed text up to, at most, the newest token; what it lacks, because a whole draft was accepted
or cycles went by without one, is fed in the first pass of the next draft. Drafted tokens stay
pending rows until the text has grown; then those that became part of it are committed.

Drawing is :mod:`~slipstream.drafters.tree_builder`'s: a chain is a tree of width one.

Knows no target: only which of its tokens it can propose. L rows that want logits, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from slipstream.drafters.base import Budget, Observation, Stateless
from slipstream.drafters.chain import chain_growth
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.drafters.vocabulary import SharedVocabulary, align_vocabulary
from slipstream.errors import Unsupported
from slipstream.models.base import ForwardOutput, Rows, TargetModel
from slipstream.types import Array, Draft, DrawMethod, SequenceState

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext

_PREFILL_FROM: Final = 64
"""More missing tokens than this are prefilled, so that a long prompt doesn't hold up the batch."""


@dataclass
class _Cached:
    """What the draft model's cache holds of one request, beyond its committed tokens."""

    handle: int
    pending: list[int] = field(default_factory=list)  # tokens of a chain behind the committed ones


@dataclass
class _Chain:
    """A draft while it grows."""

    cached: _Cached
    growth: Growth
    unfed: list[int]

    def rows(self) -> Rows:
        """The tokens that the model hasn't seen; logits for the last."""
        before, count = len(self.cached.pending), len(self.unfed)
        return Rows(
            sequences=np.full(count, self.cached.handle, np.int64),
            tokens=np.array(self.unfed, np.int64),
            parents=np.arange(before - 1, before - 1 + count, dtype=np.int64),
            wants_logits=np.arange(count) == count - 1,
        )

    def grow(self, logits: Array) -> None:
        """Take the (1, V) logits of these rows, which draws the next token, if there is one."""
        self.cached.pending += self.unfed
        self.growth.grow(logits)
        self.unfed = [self.growth.builder.tokens[node] for node in self.growth.frontier]


class DraftModel(Stateless):
    """Drafts chains with a causal LM of the same vocabulary.

    Args:
        model: the draft model; it belongs to this drafter.
        vocabulary: see :func:`slipstream.drafters.vocabulary.align_vocabulary`; or of ``logits``.
        logits: (L, v) of a pass, as wide as ``vocabulary``; by default the model's own, cut.
    """

    name = "draft"

    def __init__(
        self,
        model: TargetModel,
        vocabulary: SharedVocabulary | TrimmedVocabulary,
        logits: Callable[[Rows], Array] | None = None,
    ) -> None:
        self._model = model
        if isinstance(vocabulary, SharedVocabulary):
            common, vocabulary = vocabulary.common, vocabulary.proposable
            logits = logits or (lambda rows: model.forward(rows).logits[:, :common])
        self._vocabulary = vocabulary
        self._logits = logits or (lambda rows: model.forward(rows).logits)
        self._cached: dict[int, _Cached] = {}

    def propose(
        self, sequences: Sequence[SequenceState], budgets: Sequence[Budget], draw: DrawMethod
    ) -> list[Draft]:
        """A chain per sequence; shorter near the end of the draft model's context, then empty."""
        chains = [
            self._start(sequence, budget, draw)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]
        growing = [chain for chain in chains if chain is not None]
        while growing:
            logits_LV = self._logits(_joined([chain.rows() for chain in growing]))
            for row, chain in enumerate(growing):
                chain.grow(logits_LV[row : row + 1])
            growing = [chain for chain in growing if chain.growth.frontier]
        return [Draft() if chain is None else chain.growth.draft() for chain in chains]

    def begin(self, sequence: SequenceState, features: ForwardOutput | None) -> None:
        """Forget what an earlier run of this request left; the prompt is read when needed."""
        self.end(sequence)

    def observe(self, observations: Sequence[Observation]) -> None:
        """Keep the drafted keys and values that became text, drop the others."""
        for observation in observations:
            if observation.sequence.uid in self._cached:
                self._settle(observation.sequence)

    def end(self, sequence: SequenceState) -> None:
        """Free the request's cache."""
        if (cached := self._cached.pop(sequence.uid, None)) is not None:
            self._model.close(cached.handle)

    def _start(self, sequence: SequenceState, budget: Budget, draw: DrawMethod) -> _Chain | None:
        # The last drafted token is never fed, so it may lie one past the draft model's context.
        room = self._model.info.max_context - sequence.length + 1
        depth = min(budget.depth, budget.nodes, room)
        if depth <= 0:
            return None
        if sequence.uid not in self._cached:
            self._cached[sequence.uid] = _Cached(self._model.open())
        cached = self._settle(sequence)
        missing = sequence.tokens[self._model.length(cached.handle) :]
        if max(missing) >= self._model.info.vocab_size:
            return None  # the target wrote a token that the draft model can't read
        if len(missing) > _PREFILL_FROM:
            self._model.prefill(cached.handle, missing[:-1])
            missing = missing[-1:]
        builder = TreeBuilder(sequence, draw, self._vocabulary)
        return _Chain(cached, chain_growth(builder, depth, budget.floor), missing)

    def _settle(self, sequence: SequenceState) -> _Cached:
        """Commit the pending tokens that agree with the text, whoever wrote it, drop the others.

        The newest token always stays out: its logits are the next draft's beginning.
        """
        cached = self._cached[sequence.uid]
        committed = self._model.length(cached.handle)
        agreed = 0
        for pending, token in zip(cached.pending, sequence.tokens[committed:-1], strict=False):
            if pending != token:
                break
            agreed += 1
        self._model.commit(cached.handle, range(agreed))
        cached.pending.clear()
        return cached


def load_draft_model(spec: str, context: DrafterContext) -> DraftModel:
    """Load a draft model by name or path, as a target is loaded, or a distilled one of ours.

    Raises:
        VocabularyMismatch: it doesn't speak the target's tokens.
        Unsupported: it only runs in torch, and the target doesn't.
        ModelError, InvalidInput: see :func:`slipstream.models.loader.load_model`.
    """
    from slipstream.drafters.learned import load_draft_network
    from slipstream.models.loader import load_model

    if (network := load_draft_network(spec, context)) is not None:
        return DraftModel(network, network.vocabulary, network.trimmed_logits)
    # Receipts meet the target's rows in one computation: arrays of one kind, on one device.
    device = getattr(context.target, "device", None)
    config = context.config
    if device is not None:
        config = replace(config, backend="hf", device=str(device))
    loaded = load_model(spec, config)
    if device is None and hasattr(loaded.target, "device"):
        raise Unsupported(
            f"draft model {spec!r} only runs through Hugging Face; for use together, "
            "let the target do so as well: backend 'hf'"
        )
    vocabulary = align_vocabulary(
        context.tokenizer,
        context.target.info.vocab_size,
        loaded.tokenizer,
        loaded.target.info.vocab_size,
    )
    return DraftModel(loaded.target, vocabulary)


def _joined(parts: Sequence[Rows]) -> Rows:
    wants = [part.wants_logits for part in parts if part.wants_logits is not None]
    return Rows(
        sequences=np.concatenate([part.sequences for part in parts]),
        tokens=np.concatenate([part.tokens for part in parts]),
        parents=np.concatenate([part.parents for part in parts]),
        wants_logits=np.concatenate(wants),
    )
