"""The nouns that every package shares: trees, receipts, drafts, verdicts, sequences.

A draft is always a token tree; a chain is a tree of width one. Nodes are numbered 0..N-1, parents
before children. The *root* is the newest committed token, whose keys and values the target has not
computed yet; it is no node, has index -1 as a parent, and row 0 in a target pass, so that node i
is row i + 1.

Knows no model and no rule. Shape letters: N nodes, R = N + 1 rows, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, TypeAlias

from slipstream.config import SamplingParams

Array: TypeAlias = Any
"""An array of the Python array API: numpy, or a torch tensor on any device."""

ROOT = -1
"""Parent index of the nodes that follow the newest committed token."""


@dataclass(frozen=True)
class TokenTree:
    """Drafted tokens with their ancestry.

    Args:
        tokens: N token ids.
        parents: N parent indices, ROOT or smaller than the node's own index. Siblings keep the
            order in which they were drawn: verification rules depend on it.
    """

    tokens: tuple[int, ...] = ()
    parents: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        assert len(self.tokens) == len(self.parents)
        for node, parent in enumerate(self.parents):
            assert ROOT <= parent < node

    @classmethod
    def chain(cls, tokens: Sequence[int]) -> TokenTree:
        """The tree of width one: each token follows the one before it."""
        return cls(tuple(tokens), tuple(range(ROOT, len(tokens) - 1)))

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def depths(self) -> tuple[int, ...]:
        """Depth of each node; children of the root have depth 1."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 if parent == ROOT else depths[parent] + 1)
        return tuple(depths)

    @cached_property
    def depth(self) -> int:
        """Length of the longest path; 0 if there is no node."""
        return max(self.depths, default=0)

    def children(self, node: int) -> tuple[int, ...]:
        """Children of a node (or of ROOT), in the order in which they were drawn."""
        return tuple([i for i, parent in enumerate(self.parents) if parent == node])

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root's child down to ``node``; empty for ROOT."""
        path: list[int] = []
        while node != ROOT:
            path.append(node)
            node = self.parents[node]
        return tuple(reversed(path))


# Receipts. How the children of a node were drawn is a type, not a flag beside a tensor, and a
# receipt holds the very array that was sampled from: a wrong q is the classic silent bug.


@dataclass(frozen=True)
class Sampled:
    """Children are samples without replacement from ``probs``, in draw order.

    The draws used randomness that nothing else looks at.
    """

    probs: Array  # (V,) float32, processed


@dataclass(frozen=True)
class Gumbel:
    """Children are the top scores of ``log probs + G``, best first; G is shared with the target.

    G belongs to (request seed, position), so the plain sampler will use the same noise.
    """

    probs: Array  # (V,) float32, processed


@dataclass(frozen=True)
class PointMass:
    """Children were chosen without randomness: a lookup, a greedy draft, the top k."""


@dataclass(frozen=True)
class TopThenSampled:
    """All children but the last are chosen without randomness; the last is a sample.

    ``probs`` is the distribution of the last child: the drafter's q with the earlier siblings
    removed, renormalised (2502.18779).
    """

    probs: Array  # (V,) float32, processed


Receipt: TypeAlias = Sampled | Gumbel | PointMass | TopThenSampled

ANY_RECEIPT: Final[frozenset[type[Receipt]]] = frozenset(
    {Sampled, Gumbel, PointMass, TopThenSampled}
)
"""For rules that judge a draft however it was drawn."""

DrawMethod: TypeAlias = Literal["sampled", "gumbel", "greedy", "top-then-sampled"]
"""How a rule wants children drawn; one word per receipt type, ``greedy`` gives PointMass."""


@dataclass(frozen=True)
class Draft:
    """A token tree with the receipt of every node that has children.

    Args:
        tree: the drafted tokens.
        receipts: R = N + 1 entries in row order: entry 0 is the root's, entry i + 1 node i's;
            None where a node has no children.
    """

    tree: TokenTree = TokenTree()
    receipts: tuple[Receipt | None, ...] = (None,)

    def __post_init__(self) -> None:
        assert len(self.receipts) == len(self.tree) + 1
        parents = self.tree.parents
        for row, receipt in enumerate(self.receipts):
            assert (receipt is not None) == (row - 1 in parents)

    @classmethod
    def chain(cls, tokens: Sequence[int], receipts: Sequence[Receipt]) -> Draft:
        """A chain whose i-th token was drawn as the i-th receipt says."""
        return cls(TokenTree.chain(tokens), (*receipts, None))

    def receipt(self, node: int) -> Receipt | None:
        """The receipt of a node's children; ``ROOT`` asks for the root's."""
        return self.receipts[node + 1]

    def __len__(self) -> int:
        return len(self.tree.tokens)


NO_DRAFT: Final = Draft()
"""Nothing was drafted."""

Origin: TypeAlias = Literal["draft", "residual", "bonus"]
"""Where an emitted token came from. A rule's own token is *residual* if drafted children were
refused before it, *bonus* if there was nothing left to refuse (in plain decoding, always)."""


@dataclass(frozen=True)
class Verdict:
    """What a rule kept of a draft, and the token it added.

    Args:
        path: accepted nodes, from a child of the root downwards.
        token: the one token more, drawn by the rule.
        origin: ``residual`` or ``bonus``.
        alphas: alpha = sum over v of min(p, q) at each node reached that had drafted children:
            the root first, then along the path. What happened there is a coin flip with about
            this probability; the estimate uses the probability, not the flip. For several
            children it is the value of a chain drawn from the same receipt (q = the receipt's
            ``probs``), and for point masses p(the children).
    """

    path: tuple[int, ...]
    token: int
    origin: Origin
    alphas: tuple[float, ...] = ()


@dataclass
class SequenceState:
    """One request's tokens while it is decoded; the engine appends, everybody else reads.

    Args:
        uid: unique among the sequences of an engine.
        tokens: prompt and output so far.
        prompt_length: how many of them are the prompt.
        params: the request's sampling parameters.
        seed: the request's seed, drawn if ``params.seed`` is None.
    """

    uid: int
    tokens: list[int]
    prompt_length: int
    params: SamplingParams
    seed: int

    @property
    def length(self) -> int:
        """Committed tokens, prompt included."""
        return len(self.tokens)

    @property
    def output(self) -> list[int]:
        """Token ids emitted so far."""
        return self.tokens[self.prompt_length :]
