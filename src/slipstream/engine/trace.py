"""What happened in each cycle, for people: the drafted tree, its p and q, where the walk went.

A :class:`Trace` listens to one request (``engine.stream(…, trace=trace)``) and keeps plain values.
Probabilities are those that the rule itself looked at, so listening costs no processing: p is known
of the children of every node that the walk reached, q where the drafter's receipt has one. Draws
nothing; the command line turns a cycle into a picture.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from slipstream.models.tokenizer import Tokenizer
from slipstream.sampling.rows import ProcessedRows
from slipstream.types import (
    ROOT,
    Draft,
    Gumbel,
    Origin,
    PointMass,
    Sampled,
    TopThenSampled,
    Verdict,
)

Fate: TypeAlias = Literal["accepted", "dropped", "rejected", "unreached"]
"""Of a drafted token: *accepted*; *dropped*: accepted, but behind the request's end; *rejected*:
its parent was reached, it was not taken; *unreached*: an ancestor was not taken."""

DRAWN = {
    Sampled: "sampled",
    Gumbel: "gumbel",
    PointMass: "chosen",
    TopThenSampled: "top-then-sampled",
}


@dataclass(frozen=True)
class TracedNode:
    """A drafted token.

    Args:
        token, text: what was drafted.
        parent: index of its parent among the cycle's nodes, -1 for the root.
        depth: 1 for children of the root.
        drawn: how it and its siblings were drawn: ``sampled``, ``gumbel``, ``chosen`` or
            ``top-then-sampled``.
        q: its probability in the drafter's receipt; None where it was chosen.
        p: its probability under the target; None where the walk didn't come by.
        fate: what became of it.
    """

    token: int
    text: str
    parent: int
    depth: int
    drawn: str
    q: float | None
    p: float | None
    fate: Fate


@dataclass(frozen=True)
class TracedCycle:
    """One cycle of a request.

    Args:
        start: committed tokens when it began.
        root: text of the newest of them.
        nodes: the drafted tree; parents before children.
        path: nodes that were accepted and kept.
        token, text: the rule's own token, also where the request ended before it.
        p: its probability under the target, if the walk's last row has it.
        origin: ``residual`` or ``bonus``.
        kept: tokens emitted; fewer than ``len(path) + 1`` only where the request ended.
        alphas: the verdict's sums of min(p, q), one for each node reached that had children.
    """

    start: int
    root: str
    nodes: tuple[TracedNode, ...]
    path: tuple[int, ...]
    token: int
    text: str
    p: float
    origin: Origin
    kept: int
    alphas: tuple[float, ...]

    def children(self, node: int) -> list[int]:
        """Children of a node, or of the root (-1), in the order in which they were drawn."""
        return [index for index, child in enumerate(self.nodes) if child.parent == node]

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {**asdict(self), "nodes": [asdict(node) for node in self.nodes]}


class Trace:
    """Records the cycles of one request.

    Args:
        tokenizer: spells tokens.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.cycles: list[TracedCycle] = []

    def add_cycle(
        self,
        start: int,
        root: int,
        draft: Draft,
        verdict: Verdict,
        rows: ProcessedRows,
        kept: int,
    ) -> None:
        """Record a verdict.

        Args:
            start: committed tokens when the cycle began.
            root: the newest of them.
            draft: what was drafted.
            verdict: what the rule made of it.
            rows: the target's processed distributions; only those that the rule asked for are
                looked at.
            kept: tokens that were emitted.
        """
        reached = {ROOT, *verdict.path}
        taken = set(verdict.path)
        nodes = []
        tree = draft.tree
        for node, (token, parent, depth) in enumerate(
            zip(tree.tokens, tree.parents, tree.depths, strict=True)
        ):
            receipt = draft.receipt(parent)
            assert receipt is not None
            q = None if isinstance(receipt, PointMass) else float(receipt.probs[token])
            if isinstance(receipt, TopThenSampled) and node != tree.children(parent)[-1]:
                q = None
            fate: Fate = "unreached"
            if node in taken:
                fate = "accepted" if depth <= kept else "dropped"
            elif parent in reached:
                fate = "rejected"
            p = float(rows[parent + 1][token]) if parent in reached else None
            nodes.append(
                TracedNode(
                    token, self._spell(token), parent, depth, DRAWN[type(receipt)], q, p, fate
                )
            )
        last = verdict.path[-1] if verdict.path else ROOT
        self.cycles.append(
            TracedCycle(
                start=start,
                root=self._spell(root),
                nodes=tuple(nodes),
                path=verdict.path[:kept],
                token=verdict.token,
                text=self._spell(verdict.token),
                p=float(rows[last + 1][verdict.token]),
                origin=verdict.origin,
                kept=kept,
                alphas=tuple(float(alpha) for alpha in verdict.alphas),
            )
        )

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {"cycles": [cycle.as_dict() for cycle in self.cycles]}

    def _spell(self, token: int) -> str:
        return self._tokenizer.decode([token], skip_special=False)
