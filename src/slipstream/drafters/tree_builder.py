"""One sequence's token tree while it grows: draws children as told, and writes the receipts.

How children are drawn (``DrawMethod``), and what that asks of whoever decides the tree's shape:

* ``gumbel``: the best of log q + G with the noise that the plain sampler will use. The coupled
  rule compares the sampler's pick with the children, so *any* shape is exact, also one that was
  chosen after looking at the drawn tokens.
* ``greedy``: the most likely tokens, no randomness, a PointMass. Any shape chosen from
  probabilities is exact.
* ``sampled`` and ``top-then-sampled``: the children of a node (the last child, for the latter)
  are samples, and the rules account for the chance of each. How many children a node gets must be
  settled before they are drawn, and none may be dropped afterwards: a shape that kept a child
  because it came out likely would bias the output. Growing level by level with the counts of a
  level fixed before its first draw is enough: given all earlier levels, the level's children then
  are plain samples from their receipts. So :mod:`static_tree` and the level-wise half of
  :mod:`dynamic_tree` serve all four methods, EAGLE-2's re-ranking only the first two.

At temperature 0, q is one-hot and a tree of samples would be a chain, so children are the most
likely tokens whatever the method. Every q is processed like the target's p, with the prefix of its
own node, and only where a method needs it.

Knows no network and no rule. v drafter vocabulary, V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final, Protocol, TypeAlias

from slipstream.config import SamplingParams
from slipstream.drafters.ranking import slot_confidences, top
from slipstream.drafters.shortlist import (
    Shortlist,
    best_of,
    first_arrivals,
    processed_shortlist,
    shortlist,
)
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import NumericalError
from slipstream.sampling.noise import CycleNoise, Noise
from slipstream.sampling.processors import process_logits
from slipstream.types import (
    ROOT,
    Array,
    Draft,
    DrawMethod,
    Gumbel,
    PointMass,
    Receipt,
    Sampled,
    SequenceState,
    TokenTree,
    TopThenSampled,
)

_UNFILTERED: Final = SamplingParams(temperature=1.0)


_Drawn: TypeAlias = tuple[Callable[[Array], Receipt], Shortlist | None]
"""The kind of receipt and the very distribution, spread out only if the node stays; None for a
point mass."""

_CHOSEN: Final[_Drawn] = (lambda _: PointMass(), None)


class Growth(Protocol):
    """A plan that grows a tree level by level: nodes whose logits it wants, then their children."""

    @property
    def frontier(self) -> Sequence[int]:
        """Nodes (ROOT at first) whose logits :meth:`grow` takes next; empty when finished."""
        ...

    @property
    def builder(self) -> TreeBuilder:
        """The tree so far."""
        ...

    def grow(self, logits: Array) -> None:
        """Draw the children of the frontier; one row of (v,) logits for each of its nodes."""
        ...

    def draft(self) -> Draft:
        """The finished tree."""
        ...


class TreeBuilder:
    """Tokens, parents and receipts of a tree under construction.

    Args:
        sequence: the request; its tokens are the root's prefix.
        draw: how children are to be drawn.
        vocabulary: of the drafter's logits.
        noise: of this cycle; the request's own if not given.
    """

    def __init__(
        self,
        sequence: SequenceState,
        draw: DrawMethod,
        vocabulary: TrimmedVocabulary,
        noise: CycleNoise | None = None,
    ) -> None:
        self.draw: DrawMethod = "greedy" if sequence.params.greedy else draw
        self.tokens: list[int] = []
        self.parents: list[int] = []
        self.depths: list[int] = []
        self.logs: list[float] = []
        """Per node: log of the estimated probability that it is reached and accepted."""
        self.ranked = True
        """Whether anybody looks at ``logs``; a static shape doesn't."""
        self._sequence = sequence
        self._vocabulary = vocabulary
        self._drawn: dict[int, _Drawn] = {}
        self._noise = noise or Noise(sequence.seed).cycle(sequence.length)
        params = sequence.params
        self.prefix_matters = _moves_tokens(params)
        """Whether q may differ between nodes that have the same logits."""
        # A greedy draw needs the order of tokens and how sure the drafter is, not the request's
        # temperature or filters; only what moves single tokens matters to it.
        self._params = params
        if self.draw == "greedy":
            self._params = (
                replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
                if self.prefix_matters
                else _UNFILTERED
            )

    def __len__(self) -> int:
        return len(self.tokens)

    def depth(self, node: int) -> int:
        """Depth of a node; 0 of ROOT."""
        return 0 if node == ROOT else self.depths[node]

    def log(self, node: int) -> float:
        """Log of the estimated probability that a node is accepted; 0 of ROOT."""
        return 0.0 if node == ROOT else self.logs[node]

    def prefix(self, node: int) -> list[int]:
        """Drafted tokens from the root's child down to a node."""
        path: list[int] = []
        while node != ROOT:
            path.append(self.tokens[node])
            node = self.parents[node]
        return path[::-1]

    def candidates(self, node: int, logits_v: Array, count: int) -> Shortlist:
        """q at a node, processed with its prefix; all zero where nothing can be proposed.

        Args:
            node: its parent-to-be.
            logits_v: the drafter's, after that node.
            count: most children that will be asked for.
        """
        state = self._sequence
        try:
            if not self.prefix_matters:  # no processor knows one token from another
                ids = self._vocabulary.proposable(logits_v)
                if self.draw == "greedy" and not self.ranked:
                    return best_of(logits_v, ids, count)
                return processed_shortlist(logits_v, self._params, ids)
            probs_V = process_logits(
                self._vocabulary.widen(logits_v),
                self._params,
                state.tokens[: state.prompt_length],
                state.output + self.prefix(node),
            )
        except NumericalError:  # NaN, or all that is allowed lies outside a trimmed vocabulary
            probs_V = self._vocabulary.nothing(logits_v)
        return shortlist(probs_V, self._vocabulary.all_ids(probs_V))

    def extend(self, node: int, q: Shortlist, count: int) -> list[int]:
        """Draw up to ``count`` >= 1 children of one node; see :meth:`extend_level`."""
        return self.extend_level([node], [q], [count])[0]

    def extend_level(
        self, nodes: Sequence[int], qs: Sequence[Shortlist], counts: Sequence[int]
    ) -> list[list[int]]:
        """Draw children of nodes of one depth that have none yet; returns the new nodes of each.

        There are fewer than asked for where q has fewer tokens of positive probability.
        """
        assert all(node not in self._drawn for node in nodes)
        new: list[list[int]] = []
        for node, q, count in zip(nodes, qs, counts, strict=True):
            drawn: list[int] = []
            if count:
                drawn, confidences, how = self._children(node, q, count)
            first = len(self.tokens)
            if drawn:
                self._drawn[node] = how
                self.tokens += drawn
                self.parents += [node] * len(drawn)
                self.depths += [self.depth(node) + 1] * len(drawn)
                self.logs += [self.log(node) + _log(c) for c in confidences]
            new.append(list(range(first, len(self.tokens))))
        return new

    def draft(self, keep: Sequence[int] | None = None) -> Draft:
        """The tree as a draft, or the part of it that ``keep`` names.

        Args:
            keep: nodes, ascending, each with its parent. Only for ``gumbel`` and ``greedy`` draws.
        """
        assert keep is None or self.draw in ("gumbel", "greedy")
        kept = range(len(self.tokens)) if keep is None else keep
        number = {ROOT: ROOT, **{node: index for index, node in enumerate(kept)}}
        parents = tuple(number[self.parents[node]] for node in kept)
        tree = TokenTree(tuple(self.tokens[node] for node in kept), parents)
        inner = set(parents)
        receipts = [self.receipt(node) if number[node] in inner else None for node in (ROOT, *kept)]
        return Draft(tree, tuple(receipts))

    def receipt(self, node: int) -> Receipt:
        """How the children of a node that has some were drawn."""
        kind, drawn_from = self._drawn[node]
        if drawn_from is None:
            return PointMass()
        return kind(drawn_from.spread(self._vocabulary))

    def _children(
        self, node: int, q: Shortlist, count: int
    ) -> tuple[list[int], list[float], _Drawn]:
        """Tokens in draw order, how likely each is to be accepted, and how they were drawn."""
        depth = self.depth(node)
        if self.draw == "greedy":
            best = top(q.probs, count)
            return q.tokens(best), [float(q.probs[index]) for index in best], _CHOSEN
        if self.draw == "gumbel":
            tokens, times = first_arrivals(q, self._vocabulary, self._noise.pick(depth), count)
            # In proportion to exp(log q + G): a narrow lead is no certainty.
            total = sum(1.0 / time for time in times)
            return tokens, [1.0 / time / total for time in times], (Gumbel, q)
        stream = self._noise.draft(depth, node + 1)
        if self.draw == "sampled":
            tokens, _ = first_arrivals(q, self._vocabulary, stream, count)
            return tokens, slot_confidences(q.probs, len(tokens), self.draw), (Sampled, q)
        best = top(q.probs, count - 1)
        tokens = q.tokens(best)
        confidences = slot_confidences(q.probs, count, self.draw)
        rest = q.without(best)
        last, _ = first_arrivals(rest, self._vocabulary, stream, 1)
        if not last:  # the top holds all of q
            return tokens, confidences[: len(tokens)], _CHOSEN
        return [*tokens, *last], confidences, (TopThenSampled, rest)


def _log(chance: float) -> float:
    return math.log(max(chance, 1e-30))


def _moves_tokens(params: SamplingParams) -> bool:
    """Whether processors treat single tokens differently, so that the order may change."""
    return bool(
        params.logit_bias
        or params.repetition_penalty != 1.0
        or params.presence_penalty
        or params.frequency_penalty
        or params.allowed_token_ids is not None
        or params.banned_token_ids
    )
