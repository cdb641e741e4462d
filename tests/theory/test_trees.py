"""The tree programme: equal to exhaustive search, a chain where only chains are possible."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import pytest

from slipstream.errors import InvalidInput
from slipstream.theory.speedup import best_k, expected_tokens
from slipstream.theory.trees import best_tree, fastest_tree, shape_tokens
from slipstream.types import ROOT, TokenTree

RATES = (0.6, 0.2, 0.08)


def all_shapes(nodes: int) -> Iterator[tuple[int, ...]]:
    """Every parent list of this many nodes; many describe the same tree, none is missing."""
    return product(*(range(ROOT, node) for node in range(nodes)))


def depth(parents: tuple[int, ...]) -> int:
    return max(TokenTree((0,) * len(parents), parents).depths, default=0)


@pytest.mark.parametrize("rates", [RATES, (0.5, 0.5), (0.1, 0.7, 0.2), (0.3,)])
@pytest.mark.parametrize("max_depth", [1, 2, 6])
def test_no_tree_of_the_budget_is_worth_more(rates: tuple[float, ...], max_depth: int) -> None:
    for nodes in range(6):
        best = max(
            shape_tokens(shape, rates)
            for size in range(nodes + 1)
            for shape in all_shapes(size)
            if depth(shape) <= max_depth
        )
        found = best_tree(rates, nodes, max_depth)
        assert found.tokens == pytest.approx(best, abs=1e-12)
        assert len(found.parents) <= nodes
        assert found.depth == depth(found.parents) <= max_depth


def test_a_single_child_per_node_is_the_chain_of_the_formula() -> None:
    shape = best_tree([0.75], 5, 8)
    assert shape.parents == (ROOT, 0, 1, 2, 3)
    assert shape.tokens == pytest.approx(expected_tokens(0.75, 5))


def test_depth_one_is_the_top_children() -> None:
    shape = best_tree(RATES, 8, 1)
    assert shape.parents == (ROOT,) * 3
    assert shape.ranks == (0, 1, 2)
    assert shape.tokens == pytest.approx(1.88)


def test_a_second_child_waits_until_it_beats_a_longer_chain() -> None:
    assert best_tree((0.6, 0.3), 2, 9).parents == (ROOT, 0)  # .6 + .36 against .6 + .3
    assert best_tree((0.6, 0.3), 3, 9).parents == (ROOT, ROOT, 0)


def test_a_likelier_second_child_still_needs_the_first() -> None:
    shape = best_tree((0.1, 0.7), 2, 1)
    assert shape.parents == (ROOT, ROOT)
    assert shape.tokens == pytest.approx(1.8)
    assert best_tree((0.1, 0.7), 1, 1).tokens == pytest.approx(1.1)


def test_shapes_are_valid_token_trees_in_level_order() -> None:
    shape = best_tree(RATES, 40, 6)
    tree = TokenTree((0,) * len(shape.parents), shape.parents)
    assert list(tree.depths) == sorted(tree.depths)
    for node in range(ROOT, len(tree)):
        assert [shape.ranks[child] for child in tree.children(node)] == list(
            range(len(tree.children(node)))
        )


def test_more_nodes_are_never_worth_less() -> None:
    values = [best_tree(RATES, nodes, 5).tokens for nodes in range(30)]
    assert values == sorted(values)


def test_with_one_child_and_flat_passes_the_fastest_tree_is_the_best_k() -> None:
    shape = fastest_tree(
        [0.75], max_nodes=20, max_depth=20, pass_time=lambda rows: 1.0, draft_time=0.1
    )
    assert shape.depth == len(shape.parents) == best_k(0.75, 0.1).k == 5


def test_free_rows_make_trees_and_dear_rows_make_none() -> None:
    free = fastest_tree(
        RATES, max_nodes=16, max_depth=8, pass_time=lambda rows: 1.0, draft_time=0.1
    )
    dear = fastest_tree(
        RATES, max_nodes=16, max_depth=8, pass_time=lambda rows: float(rows), draft_time=0.1
    )
    assert len(free.parents) == 16
    assert max(free.ranks) > 0
    assert dear.parents == ()
    assert dear.tokens == 1.0


def test_the_fastest_tree_beats_every_budget_and_depth() -> None:
    def pass_time(rows: int) -> float:
        return 1.0 + 0.04 * rows

    best = fastest_tree(RATES, max_nodes=12, max_depth=6, pass_time=pass_time, draft_time=0.15)
    rate = best.tokens / (best.depth * 0.15 + pass_time(len(best.parents) + 1))
    for nodes, levels in product(range(13), range(1, 7)):
        shape = best_tree(RATES, nodes, levels)
        other = shape.tokens / (shape.depth * 0.15 + pass_time(len(shape.parents) + 1))
        assert other <= rate + 1e-12


def test_children_that_are_never_accepted_are_not_drafted() -> None:
    assert best_tree((0.5, 0.0), 3, 1).parents == (ROOT,)
    assert best_tree((0.0,), 3, 3).parents == ()
    assert best_tree((), 3, 3).parents == ()


def test_impossible_questions_are_refused() -> None:
    with pytest.raises(InvalidInput, match="at most 1"):
        best_tree((0.7, 0.7), 3, 3)
    with pytest.raises(InvalidInput, match="probabilities"):
        best_tree((-0.1,), 3, 3)
    with pytest.raises(InvalidInput, match="nodes and depth"):
        best_tree((0.5,), -1, 3)
    with pytest.raises(InvalidInput, match="earlier node"):
        shape_tokens((ROOT, 1), (0.5,))
    with pytest.raises(InvalidInput, match="draft_time"):
        fastest_tree((0.5,), max_nodes=2, max_depth=2, pass_time=float, draft_time=-1.0)
    with pytest.raises(InvalidInput, match="pass of 1 rows"):
        fastest_tree((0.5,), max_nodes=2, max_depth=2, pass_time=lambda _: 0.0, draft_time=0.1)
