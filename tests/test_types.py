"""Trees and drafts: numbering, ancestry, and receipts where there are children."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slipstream.types import ROOT, Draft, PointMass, Sampled, TokenTree


@st.composite
def trees(draw: st.DrawFn) -> TokenTree:
    size = draw(st.integers(0, 12))
    parents = [draw(st.integers(ROOT, node - 1)) for node in range(size)]
    return TokenTree(tuple(range(size)), tuple(parents))


@given(trees())
def test_a_path_goes_from_a_child_of_the_root_down_to_its_node(tree: TokenTree) -> None:
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[-1] == node
        assert len(path) == tree.depths[node]
        assert [tree.parents[i] for i in path] == [ROOT, *path[:-1]]


@given(trees())
def test_every_node_is_the_child_of_exactly_one_parent(tree: TokenTree) -> None:
    families = [tree.children(parent) for parent in range(ROOT, len(tree))]
    assert sorted(node for family in families for node in family) == list(range(len(tree)))


def test_a_chain_is_a_tree_of_width_one() -> None:
    chain = TokenTree.chain([7, 8, 9])
    assert chain.parents == (ROOT, 0, 1)
    assert chain.depths == (1, 2, 3)
    assert chain.path(2) == (0, 1, 2)


def test_a_child_before_its_parent_is_a_broken_tree() -> None:
    with pytest.raises(AssertionError):
        TokenTree((1, 2), (1, ROOT))


def test_a_node_with_children_has_a_receipt_and_a_leaf_has_none() -> None:
    receipt = Sampled(np.ones(4, np.float32) / 4)
    draft = Draft.chain([1, 2], [receipt, PointMass()])
    assert draft.receipt(ROOT) is receipt
    assert isinstance(draft.receipt(0), PointMass)
    assert draft.receipt(1) is None
    with pytest.raises(AssertionError):
        Draft(TokenTree.chain([1]), (None, None))
    with pytest.raises(AssertionError):
        Draft(TokenTree.chain([1]), (PointMass(), PointMass()))
