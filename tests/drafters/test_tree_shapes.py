"""Shapes of trees: static by accuracy, EAGLE-2's connected top N, places shared out by level."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from slipstream.config import SamplingParams
from slipstream.drafters.base import Budget
from slipstream.drafters.dynamic_tree import RerankedGrowth, dynamic_growth
from slipstream.drafters.static_tree import TYPICAL_ACCURACY, Shape, StaticGrowth, best_shape
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import InvalidInput
from slipstream.theory.trees import best_tree, shape_tokens
from slipstream.types import ROOT, Draft, DrawMethod, SequenceState, TokenTree

SIZE = 40
DRAWS: tuple[DrawMethod, ...] = ("sampled", "gumbel", "greedy", "top-then-sampled")


def depth_of(shape: Shape) -> int:
    return max(TokenTree((0,) * len(shape), shape.parents).depths, default=0)


def logits_after(prefix: tuple[int, ...], sharpness: float = 2.0) -> np.ndarray:
    rng = np.random.default_rng([len(prefix), *prefix])
    return (sharpness * rng.normal(size=SIZE)).astype(np.float32)


def run(growth: Growth) -> Draft:
    while growth.frontier:
        prefixes = [tuple(growth.builder.prefix(node)) for node in growth.frontier]
        growth.grow(np.stack([logits_after(prefix) for prefix in prefixes]))
    return growth.draft()


def builder(draw: DrawMethod, seed: int = 1, temperature: float = 1.0) -> TreeBuilder:
    state = SequenceState(0, [0], 1, SamplingParams(temperature=temperature), seed)
    return TreeBuilder(state, draw, TrimmedVocabulary(SIZE))


# Static.


def test_medusa_choices_become_a_tree_in_any_order() -> None:
    shape = Shape.from_paths([[1], [0, 0], [0], [0, 1], [0, 0, 0], [2]])
    assert shape.parents == (ROOT, ROOT, ROOT, 0, 0, 3)


@pytest.mark.parametrize("paths", [[[1]], [[0, 0]], [[0], [0, 1]], [[]]])
def test_a_path_without_its_parent_or_elder_sibling_is_refused(paths: list[list[int]]) -> None:
    with pytest.raises(InvalidInput, match="needs its parent"):
        Shape.from_paths(paths)


def test_the_cartesian_product_has_all_combinations() -> None:
    shape = Shape.cartesian([3, 2, 1])
    assert len(shape) == 3 + 6 + 6 and depth_of(shape) == 3


def test_the_best_shape_is_the_best_of_all_by_accuracy() -> None:
    accuracy = ((0.5, 0.2, 0.1), (0.4, 0.3), (0.6, 0.1))
    paths = [
        path
        for depth in (1, 2, 3)
        for path in itertools.product(*(range(len(row)) for row in accuracy[:depth]))
    ]
    value = {p: float(np.prod([accuracy[d][rank] for d, rank in enumerate(p)])) for p in paths}
    best = sum(sorted(value.values(), reverse=True)[:7])

    shape = best_shape(accuracy, 7, 3)
    ranks = [shape.parents[:node].count(parent) for node, parent in enumerate(shape.parents)]
    tree = TokenTree(tuple(ranks), shape.parents)
    total = sum(value[tuple(ranks[i] for i in tree.path(node))] for node in range(len(shape)))
    assert total == pytest.approx(best)


def test_with_equal_accuracy_at_all_depths_it_is_the_dynamic_programmes() -> None:
    rates = TYPICAL_ACCURACY[0]
    for nodes, depth in ((4, 2), (9, 3), (16, 4), (30, 6)):
        shape = best_shape((rates,), nodes, depth)
        optimum = best_tree(rates, nodes, depth)
        assert shape_tokens(shape.parents, rates) == pytest.approx(optimum.tokens)


def test_a_shape_found_elsewhere_can_be_filled() -> None:
    optimum = best_tree([0.5, 0.2, 0.1], 9, 3)
    draft = run(StaticGrowth(builder("sampled"), Shape(optimum.parents)))
    assert draft.tree.parents == optimum.parents


@pytest.mark.parametrize(("nodes", "depth"), [(0, 4), (1, 4), (4, 4), (3, 8)])
def test_no_more_nodes_than_levels_asks_for_a_chain(nodes: int, depth: int) -> None:
    assert best_shape((), nodes, depth) == Shape.chain(nodes)
    for draw in DRAWS:
        draft = run(dynamic_growth(builder(draw), Budget(depth=depth, nodes=nodes), 4))
        assert draft.tree.parents == tuple(range(-1, nodes - 1))


def test_pruning_keeps_whole_paths() -> None:
    shape = Shape.cartesian([2, 2, 2])
    assert shape.pruned(5, 9).parents == shape.parents[:5]
    assert depth_of(shape.pruned(99, 2)) == 2 and len(shape.pruned(99, 2)) == 6
    assert len(shape.pruned(0, 3)) == 0


# Dynamic.


@pytest.mark.parametrize("draw", DRAWS)
@pytest.mark.parametrize(
    ("depth", "nodes", "width"), [(1, 5, 3), (3, 8, 2), (4, 20, 4), (6, 24, 8)]
)
def test_dynamic_trees_stay_within_their_budget(
    draw: DrawMethod, depth: int, nodes: int, width: int
) -> None:
    for seed in range(4):
        draft = run(dynamic_growth(builder(draw, seed), Budget(depth=depth, nodes=nodes), width))
        assert 0 < len(draft) <= nodes and max(draft.tree.depths) <= depth
        siblings = set(zip(draft.tree.parents, draft.tree.tokens, strict=True))
        assert len(siblings) == len(draft)


def test_eagle_2_keeps_the_most_likely_nodes_of_all_it_saw() -> None:
    """Connected, parents first, and no candidate that was left out beats one that stayed."""
    growth = RerankedGrowth(builder("greedy"), Budget(depth=4, nodes=10), 4)
    draft = run(growth)
    tree, candidates = draft.tree, growth.builder
    kept = {tuple(tree.tokens[i] for i in tree.path(node)) for node in range(len(tree))}
    values = {tuple(candidates.prefix(n)): candidates.logs[n] for n in range(len(candidates))}
    assert len(draft) == 10 and len(values) > 30
    assert min(values[path] for path in kept) >= max(
        value for path, value in values.items() if path not in kept
    )
    for path in kept:
        assert path[:-1] in kept or len(path) == 1
        confidence = 1.0
        for depth, token in enumerate(path):
            weights = np.exp(logits_after(path[:depth]).astype(np.float64))
            confidence *= weights[token] / weights.sum()
        assert values[path] == pytest.approx(np.log(confidence), abs=1e-4)


def test_coupled_children_stay_in_the_order_of_their_scores() -> None:
    for seed in range(6):
        start = builder("gumbel", seed)
        draft = run(RerankedGrowth(start, Budget(depth=3, nodes=9), 4))
        for node in (ROOT, *range(len(draft))):
            children = draft.tree.children(node)
            if children:
                receipt = draft.receipt(node)
                depth = len(draft.tree.path(node))
                ids = np.flatnonzero(receipt.probs)  # type: ignore[union-attr]
                times = start._noise.pick(depth).exponentials(ids) / receipt.probs[ids]  # type: ignore[union-attr]
                order = ids[np.argsort(times)]
                tokens = [draft.tree.tokens[child] for child in children]
                assert tokens == order[: len(tokens)].tolist()


@pytest.mark.parametrize("draw", ["sampled", "top-then-sampled"])
def test_places_are_settled_before_the_draw(draw: DrawMethod) -> None:
    """The shape down to a level does not change with that level's noise, only with earlier ones."""
    shapes = set()
    for seed in range(8):
        draft = run(dynamic_growth(builder(draw, seed), Budget(depth=3, nodes=9), 3))
        shapes.add(draft.tree.parents.count(ROOT))
    assert len(shapes) == 1


def test_a_surer_drafter_gets_deeper_trees() -> None:
    def depth(sharpness: float) -> float:
        growth = dynamic_growth(builder("greedy"), Budget(depth=8, nodes=12), 4)
        while growth.frontier:
            prefixes = [tuple(growth.builder.prefix(node)) for node in growth.frontier]
            growth.grow(np.stack([logits_after(p, sharpness) for p in prefixes]))
        return float(np.mean(growth.draft().tree.depths))

    assert depth(6.0) > depth(1.0)
