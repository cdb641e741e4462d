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

A receipt is written out over the target's vocabulary when it is asked for: of the candidates of a
dynamic tree most are dropped.

Knows no network and no rule. v drafter vocabulary, V target vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Protocol

from array_api_compat import array_namespace, device

from slipstream.config import SamplingParams
from slipstream.drafters.ranking import slot_confidences, top
from slipstream.drafters.shortlist import Shortlist, shortlist
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import NumericalError
from slipstream.sampling.noise import CycleNoise, Noise
from slipstream.sampling.processors import process_logits
from slipstream.sampling.race import race
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


_FEW: Final = 4096
"""Up to so many tokens, drawing all their noise at once beats a race for each node."""


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
        self._receipts: dict[int, Receipt | Shortlist] = {}  # a Shortlist is a Gumbel, unwritten
        self._noise = noise or Noise(sequence.seed).cycle(sequence.length)
        params = sequence.params
        # A greedy draw needs the order of tokens and how sure the drafter is, not the request's
        # temperature or filters; only what moves single tokens matters to it.
        self._params = (
            replace(params, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
            if self.draw == "greedy"
            else params
        )
        self.prefix_matters = _moves_tokens(params)
        """Whether q may differ between nodes that have the same logits."""

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
                    return _best(logits_v, ids, count)
                return shortlist(process_logits(logits_v, self._params, [], []), ids)
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
        assert all(node not in self._receipts for node in nodes)
        fields: Sequence[Array | None] = [None] * len(nodes)
        if self.draw == "gumbel" and len(nodes) > 1 and sum(len(q) for q in qs) <= _FEW:
            fields = self._shared_noise(self.depth(nodes[0]), qs)
        new: list[list[int]] = []
        for node, q, count, field in zip(nodes, qs, counts, fields, strict=True):
            drawn: list[int] = []
            if count:
                drawn, confidences, receipt = self._children(node, q, count, field)
            first = len(self.tokens)
            if drawn:
                self._receipts[node] = receipt
                self.tokens += drawn
                self.parents += [node] * len(drawn)
                self.depths += [self.depth(node) + 1] * len(drawn)
                log = self.log(node)
                self.logs += [log + math.log(max(c, 1e-30)) for c in confidences]
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
        receipts = [
            self._receipt(node) if number[node] in inner else None for node in (ROOT, *kept)
        ]
        return Draft(tree, tuple(receipts))

    def _receipt(self, node: int) -> Receipt:
        receipt = self._receipts[node]
        return Gumbel(self._spread(receipt)) if isinstance(receipt, Shortlist) else receipt

    def _spread(self, q: Shortlist) -> Array:
        """q over the target's vocabulary."""
        probs_V = self._vocabulary.nothing(q.probs)
        probs_V[q.ids] = q.probs
        return probs_V

    def _children(
        self, node: int, q: Shortlist, count: int, field: Array | None
    ) -> tuple[list[int], list[float], Receipt | Shortlist]:
        """Tokens in draw order, how likely each is to be accepted, and the receipt."""
        depth = self.depth(node)
        if self.draw == "greedy":
            best = top(q.probs, count)
            return _tokens(q, best), [float(q.probs[index]) for index in best], PointMass()
        if self.draw == "gumbel":
            return self._coupled(q, count, depth, field)
        stream = self._noise.draft(depth, node + 1)
        if self.draw == "sampled":
            probs = self._spread(q)
            tokens = race(probs, stream, count)
            return tokens, slot_confidences(q.probs, len(tokens), self.draw), Sampled(probs)
        best = top(q.probs, count - 1)
        tokens = _tokens(q, best)
        confidences = slot_confidences(q.probs, count, self.draw)
        rest = self._spread(Shortlist(q.ids, _without(q.probs, best)))
        if not (last := race(rest, stream)):  # the top holds all of q
            return tokens, confidences[: len(tokens)], PointMass()
        return [*tokens, *last], confidences, TopThenSampled(rest)

    def _coupled(
        self, q: Shortlist, count: int, depth: int, field: Array | None
    ) -> tuple[list[int], list[float], Receipt | Shortlist]:
        """The best of log q + G, and their shares of exp(log q + G): a narrow lead is no certainty.

        A node alone at its depth, or with a long list, lets a race draw the little of G it needs.
        """
        xp = array_namespace(q.probs)
        if field is not None:
            values = q.probs / field
            best = top(values, count)
            tokens, scores = _tokens(q, best), [float(values[index]) for index in best]
            receipt: Receipt | Shortlist = q
        else:
            probs = self._spread(q)
            stream = self._noise.pick(depth)
            tokens = race(probs, stream, count)
            receipt = Gumbel(probs)
            if len(tokens) == 1 or not self.ranked:
                return tokens, [1.0] * len(tokens), receipt
            ids = xp.asarray(tokens, dtype=xp.int64, device=device(probs))
            scores = (xp.astype(probs[ids], xp.float64) / stream.exponentials(ids)).tolist()
        total = sum(scores)
        return tokens, [score / total for score in scores], receipt

    def _shared_noise(self, depth: int, qs: Sequence[Shortlist]) -> list[Array]:
        """For each q of a depth, the exponentials exp(-G) of its tokens: all nodes share G."""
        xp = array_namespace(qs[0].ids)
        union = xp.unique_values(xp.concat([q.ids for q in qs]))
        exponentials = self._noise.pick(depth).exponentials(union)
        return [exponentials[xp.searchsorted(union, q.ids)] for q in qs]


def _best(logits_v: Array, ids: Array, count: int) -> Shortlist:
    """The ``count`` most likely tokens, as if they were equally so: nobody asks how likely.

    Raises:
        NumericalError: NaN or infinite logits.
    """
    best = top(logits_v, count, above=-math.inf)
    if not best or not math.isfinite(float(logits_v[best[0]])):
        raise NumericalError("the drafter's logits are not finite")
    xp = array_namespace(logits_v)
    places = xp.asarray(best, dtype=xp.int64, device=device(logits_v))
    share = xp.full((len(best),), 1.0 / len(best), dtype=xp.float32, device=device(logits_v))
    return Shortlist(ids[places], share)


def _tokens(q: Shortlist, places: Sequence[int]) -> list[int]:
    return [int(q.ids[place]) for place in places]


def _without(probs: Array, tokens: Sequence[int]) -> Array:
    """q off some tokens, renormalised; all zero where nothing is left."""
    if not tokens:
        return probs
    xp = array_namespace(probs)
    rest = xp.asarray(probs, copy=True)
    rest[xp.asarray(tokens, dtype=xp.int64, device=device(probs))] = 0.0
    total = float(xp.sum(rest))
    return rest / total if total > 0.0 else rest


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
