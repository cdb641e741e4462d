"""Two drafts of one sequence as one tree: common prefixes fall together, receipts stay true.

A node whose children come from one draft keeps that draft's receipt. Where both have children, the
merged node needs a single receipt that still tells how its children came about:

* chosen or coupled children beside chosen ones: all of them, a PointMass. Chosen sets add up, and
  the coupled rule doesn't ask how children were drawn.
* top-then-sampled children beside chosen ones C: the sample i came from q'. If i is one of C, the
  children are C and the top, whichever of C it was: a PointMass. If not, i is a sample of q' off C,
  and C joins the top. Which of the two it is, is a coin that nothing else depends on.
* sampled children: only they stay, because the recursive rule has no place for a chosen one beside
  them. A chosen continuation survives where the sample happens to agree with it.

Two drafts that both sampled keep the second one's children. Knows no model and no rule.
"""

from __future__ import annotations

from array_api_compat import array_namespace, device

from slipstream.types import (
    ROOT,
    Draft,
    Gumbel,
    PointMass,
    Receipt,
    TokenTree,
    TopThenSampled,
)


def merge(chosen: Draft, other: Draft) -> Draft:
    """One tree of both.

    Args:
        chosen: usually point masses throughout, such as a copied continuation.
        other: any draft for the same sequence and cycle; its children come first.
    """
    if not len(chosen) or not len(other):
        return chosen if len(chosen) else other
    tokens: list[int] = []
    parents: list[int] = []
    receipts: list[Receipt | None] = []
    # Nodes of the merged tree in order, each with the nodes it stands for; None in one missing it.
    origins: list[tuple[int | None, int | None]] = [(ROOT, ROOT)]
    for merged, (a, b) in enumerate(origins, start=ROOT):
        first, second = _children(chosen, a), _children(other, b)
        kept, receipt = _siblings(
            list(first), _receipt(chosen, a), list(second), _receipt(other, b)
        )
        receipts.append(receipt)
        for token in kept:
            tokens.append(token)
            parents.append(merged)
            origins.append((first.get(token), second.get(token)))
    return Draft(TokenTree(tuple(tokens), tuple(parents)), tuple(receipts))


def _siblings(
    first: list[int], a: Receipt | None, second: list[int], b: Receipt | None
) -> tuple[list[int], Receipt | None]:
    """Tokens and receipt of a merged node's children."""
    if a is None or b is None:
        return (second, b) if a is None else (first, a)
    added = [token for token in first if token not in second]
    if all(isinstance(receipt, (PointMass, Gumbel)) for receipt in (a, b)):
        return second + added, PointMass()
    if isinstance(a, PointMass) and isinstance(b, TopThenSampled):
        *top, sampled = second
        if sampled in first:
            return [*top, *added, sampled], PointMass()
        if not added:
            return second, b
        xp = array_namespace(b.probs)
        rest = xp.asarray(b.probs, copy=True)
        rest[xp.asarray(added, dtype=xp.int64, device=device(rest))] = 0.0
        return [*top, *added, sampled], TopThenSampled(rest / xp.sum(rest))
    return second, b


def _children(draft: Draft, node: int | None) -> dict[int, int]:
    """Token -> node of a node's children, in draw order."""
    if node is None:
        return {}
    return {draft.tree.tokens[child]: child for child in draft.tree.children(node)}


def _receipt(draft: Draft, node: int | None) -> Receipt | None:
    return None if node is None else draft.receipt(node)
