"""Trees as the builders grow them: exact under every rule that can judge them, by enumeration."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from slipstream.config import SamplingParams
from slipstream.drafters.base import Budget
from slipstream.drafters.chain import StoppingChain, chain_growth
from slipstream.drafters.dynamic_tree import LevelwiseGrowth, RerankedGrowth, dynamic_growth
from slipstream.drafters.merge import merge
from slipstream.drafters.ranking import slot_confidences, top
from slipstream.drafters.shortlist import (
    LIGHT,
    MOST,
    Shortlist,
    first_arrivals,
    processed_shortlist,
    shortlist,
)
from slipstream.drafters.static_tree import Shape, StaticGrowth
from slipstream.drafters.tree_builder import Growth, TreeBuilder
from slipstream.drafters.trimmed_vocabulary import TrimmedVocabulary
from slipstream.errors import NumericalError
from slipstream.sampling.noise import Noise
from slipstream.sampling.processors import process_logits
from slipstream.sampling.race import race as shipped_race
from slipstream.types import (
    ROOT,
    Draft,
    DrawMethod,
    Gumbel,
    PointMass,
    Sampled,
    SequenceState,
    TopThenSampled,
)
from slipstream.verification.registry import get_rule
from tests.exactness.enumeration import Branches, OracleNoise, enumerable, law, race  # noqa: F401
from tests.exactness.small_laws import Pair, pairs, text_law
from tests.exactness.speculation import emitted, target_rows

Start = Callable[[TreeBuilder], Growth]
CONTEXT = (0,)


def state(**params: object) -> SequenceState:
    return SequenceState(0, list(CONTEXT), 1, SamplingParams(temperature=1.0, **params), 11)  # type: ignore[arg-type]


def grow(pair: Pair, start: Start, draw: DrawMethod, noise: object, **params: object) -> Draft:
    """Grow a tree whose logits are those of the pair's drafter."""
    size = len(pair.drafter(CONTEXT))
    builder = TreeBuilder(state(**params), draw, TrimmedVocabulary(size), noise)  # type: ignore[arg-type]
    growth = start(builder)
    while growth.frontier:
        with np.errstate(divide="ignore"):
            rows = [
                np.log(pair.drafter((*CONTEXT, *builder.prefix(node)))) for node in growth.frontier
            ]
        growth.grow(rows)
    return growth.draft()


def error(rule_name: str, pair: Pair, experiment: Callable[[object], Draft]) -> float:
    """Largest difference between the law of what a cycle emits and the target's."""
    rule = get_rule(rule_name)

    def cycle(branches: Branches) -> tuple[int, ...]:
        noise = OracleNoise(branches)
        draft = experiment(noise)
        verdict = rule.verify(draft, target_rows(pair.target, CONTEXT, draft), noise)  # type: ignore[arg-type]
        return emitted(draft, verdict)

    blocks = law(cycle)
    length = max(map(len, blocks))
    texts = dict.fromkeys(itertools.product(range(3), repeat=length), 0.0)
    for block, mass in blocks.items():
        rest = text_law(pair.target, (*CONTEXT, *block), length - len(block))
        for text, probability in rest.items():
            texts[(*block, *text)] += mass * probability
    exact = text_law(pair.target, CONTEXT, length)
    return max(abs(mass - exact.get(text, 0.0)) for text, mass in texts.items())


SHAPES: dict[str, Start] = {
    "chain": lambda b: StaticGrowth(b, Shape.chain(2)),
    "stopping": lambda b: StoppingChain(b, 2, 0.4),
    "static": lambda b: StaticGrowth(b, Shape.from_paths([[0], [1], [0, 0], [1, 0]])),
    "dynamic": lambda b: dynamic_growth(b, Budget(depth=2, nodes=4), 2),
    "wide": lambda b: dynamic_growth(b, Budget(depth=1, nodes=3), 3),
}
JUDGES: list[tuple[str, DrawMethod]] = [
    ("recursive", "sampled"),
    ("recursive", "greedy"),
    ("greedy_siblings", "top-then-sampled"),
    ("greedy_siblings", "greedy"),
    ("coupled", "greedy"),
]


@pytest.fixture
def oracle(enumerable: None, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    """Let the tree builder draw by enumeration too."""

    def by_enumeration(
        q: Shortlist, vocabulary: TrimmedVocabulary, stream: Any, count: int
    ) -> tuple[list[int], list[float]]:
        tokens = race(q.spread(vocabulary), stream, count)
        return tokens, [1.0] * len(tokens)

    monkeypatch.setattr("slipstream.drafters.tree_builder.first_arrivals", by_enumeration)


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("rule", "draw"), JUDGES)
@pytest.mark.parametrize("pair", pairs(3), ids=str)
def test_grown_trees_emit_the_targets_law(
    rule: str, draw: DrawMethod, shape: str, pair: Pair
) -> None:
    assert error(rule, pair, lambda noise: grow(pair, SHAPES[shape], draw, noise)) < 1e-12


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize("rule", ["rejection", "block"])
@pytest.mark.parametrize("pair", pairs(3), ids=str)
def test_chains_that_stop_early_emit_the_targets_law(rule: str, pair: Pair) -> None:
    def start(builder: TreeBuilder) -> Growth:
        return StoppingChain(builder, 2, 0.4)

    assert error(rule, pair, lambda noise: grow(pair, start, "sampled", noise)) < 1e-12


@pytest.mark.parametrize("draw", ["greedy", "gumbel"])
def test_a_chain_stops_where_it_has_become_unlikely(draw: DrawMethod) -> None:
    sure, unsure = np.array([30.0, 0.0, 0.0]), np.array([0.1, 0.0, 0.0])

    def length(rows: list[Any], floor: float) -> int:
        growth = chain_growth(TreeBuilder(state(), draw, TrimmedVocabulary(3)), len(rows), floor)
        left = iter(rows)
        while growth.frontier:
            growth.grow([next(left)])
        draft = growth.draft()
        assert draft.tree.parents == tuple(range(ROOT, len(draft) - 1))
        return len(draft)

    rows = [sure, sure, unsure, unsure, unsure]
    assert length(rows, 0.0) == 5
    # A token that wins narrowly is drafted and gets no successor.
    assert length(rows, 0.99) == 3
    assert length([unsure, sure], 0.99) == 1


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize(("rule", "draw"), JUDGES)
@pytest.mark.parametrize("pair", pairs(3), ids=str)
@pytest.mark.parametrize("copied", [(0,), (2, 0)], ids=str)
def test_merged_with_a_copy_they_still_do(
    rule: str, draw: DrawMethod, pair: Pair, copied: tuple[int, ...]
) -> None:
    def bushy(builder: TreeBuilder) -> Growth:
        return StaticGrowth(builder, Shape.from_paths([[0], [1], [0, 0]]))

    chosen = Draft.chain(copied, [PointMass()] * len(copied))

    def experiment(noise: object) -> Draft:
        return merge(chosen, grow(pair, bushy, draw, noise))

    assert error(rule, pair, experiment) < 1e-12


@pytest.mark.usefixtures("oracle")
def test_re_ranking_sampled_children_is_biased_and_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Why sampled children get the level-wise tree: the same measurement sees what EAGLE-2's
    re-ranking would do to them."""

    def keep_the_likelier(noise: object, pair: Pair) -> Draft:
        draft = grow(pair, lambda b: StaticGrowth(b, Shape.chain(1)), "sampled", noise)
        receipt = draft.receipts[0]
        assert isinstance(receipt, Sampled)
        return draft if receipt.probs[draft.tree.tokens[0]] == receipt.probs.max() else Draft()

    generic = pairs(3)[0]
    assert error("recursive", generic, lambda noise: keep_the_likelier(noise, generic)) > 0.01


@pytest.mark.parametrize("draw", ["sampled", "top-then-sampled"])
def test_re_ranking_refuses_sampled_children(draw: DrawMethod) -> None:
    builder = TreeBuilder(state(), draw, TrimmedVocabulary(8))
    with pytest.raises(AssertionError):
        RerankedGrowth(builder, Budget(depth=2, nodes=4), 2)
    assert isinstance(dynamic_growth(builder, Budget(depth=2, nodes=4), 2), LevelwiseGrowth)


# What one node's children and receipt are.


def builder_of(
    draw: DrawMethod, size: int = 8, ids: object = None, **params: object
) -> TreeBuilder:
    return TreeBuilder(state(**params), draw, TrimmedVocabulary(size, ids))


def logits(size: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=size).astype(np.float32)


@pytest.mark.parametrize(
    ("draw", "kind"),
    [
        ("sampled", Sampled),
        ("gumbel", Gumbel),
        ("greedy", PointMass),
        ("top-then-sampled", TopThenSampled),
    ],
)
def test_a_trimmed_vocabulary_leaves_full_width_receipts(draw: DrawMethod, kind: type) -> None:
    ids = np.array([1, 2, 5, 7, 30, 39])
    builder = builder_of(draw, 40, ids)
    builder.extend(ROOT, builder.candidates(ROOT, logits(6), 3), 3)
    draft = builder.draft()
    receipt = draft.receipts[0]
    assert type(receipt) is kind and set(draft.tree.tokens) <= set(ids.tolist())
    if kind is not PointMass:
        assert receipt.probs.shape == (40,) and receipt.probs.dtype == np.float32
        assert set(np.flatnonzero(receipt.probs)) <= set(ids.tolist())
        assert receipt.probs.sum() == pytest.approx(1.0, abs=1e-6)


def test_processors_see_the_nodes_own_prefix() -> None:
    builder = builder_of("greedy", banned_token_ids=(3,), frequency_penalty=50.0)
    row = np.array([1.0, 0.9, 0.8, 9.0, -5, -5, -5, -5], np.float32)
    first = builder.extend(ROOT, builder.candidates(ROOT, row, 2), 2)
    assert [builder.tokens[node] for node in first] == [0, 1]
    for node in first:
        builder.extend(node, builder.candidates(node, row, 1), 1)
    assert builder.prefix(2) == [0, 1] and builder.prefix(3) == [1, 0]


def test_nothing_allowed_in_the_drafters_vocabulary_is_no_draft() -> None:
    for draw in ("sampled", "gumbel", "greedy", "top-then-sampled"):
        builder = builder_of(draw, 40, np.arange(6), allowed_token_ids=(20, 21))
        growth = dynamic_growth(builder, Budget(depth=3, nodes=6), 2)
        growth.grow([logits(6)])
        assert not growth.frontier and len(growth.draft()) == 0


def test_at_temperature_0_children_are_the_most_likely_tokens_whatever_the_rule() -> None:
    row = logits(8)
    for draw in ("sampled", "gumbel", "greedy", "top-then-sampled"):
        sequence = SequenceState(0, [0], 1, SamplingParams(), 1)
        builder = TreeBuilder(sequence, draw, TrimmedVocabulary(8))
        builder.extend(ROOT, builder.candidates(ROOT, row, 3), 3)
        assert builder.tokens == np.argsort(-row)[:3].tolist()
        assert builder.draft().receipts[0] == PointMass()


@pytest.mark.parametrize("ids", [None, np.arange(0, 40, 3)], ids=["whole", "trimmed"])
@pytest.mark.parametrize("params", [{}, {"frequency_penalty": 0.5}], ids=str)
def test_coupled_children_are_the_race_of_their_depths_noise(
    ids: object, params: dict[str, object]
) -> None:
    """However many nodes share a depth: the first child is what the plain sampler would pick."""
    width = 40 if ids is None else 14
    builder = builder_of("gumbel", 40, ids, **params)
    for node, row in [(ROOT, 0), (0, 1), (1, 2), (2, 3)]:
        builder.extend(node, builder.candidates(node, logits(width, row), 3), 3)
    draft = builder.draft()
    for node in (ROOT, 0, 1, 2):
        receipt = draft.receipt(node)
        assert isinstance(receipt, Gumbel)
        stream = Noise(11).cycle(1).pick(builder.depth(node))
        children = [draft.tree.tokens[child] for child in draft.tree.children(node)]
        assert children == shipped_race(receipt.probs, stream, 3)


@pytest.mark.parametrize("ids", [None, np.arange(0, 6000, 3)], ids=["whole", "trimmed"])
def test_nodes_grown_together_draw_what_each_would_draw_alone(ids: object) -> None:
    """With q cut down to a shortlist, and receipts that state that very q."""
    width = 6000 if ids is None else 2000
    rows = [6 * logits(width, seed) for seed in range(4)]
    together, alone = (builder_of("gumbel", 6000, ids) for _ in range(2))
    for builder in (together, alone):
        builder.extend(ROOT, builder.candidates(ROOT, rows[0], 3), 3)
    qs = [together.candidates(node, rows[node + 1], 4) for node in range(3)]
    together.extend_level(range(3), qs, [4, 2, 3])
    for node, count in zip(range(3), [4, 2, 3], strict=True):
        alone.extend(node, alone.candidates(node, rows[node + 1], count), count)
    one, other = together.draft(), alone.draft()
    assert one.tree == other.tree
    np.testing.assert_allclose(together.logs, alone.logs, rtol=1e-6)
    for mine, theirs in zip(one.receipts, other.receipts, strict=True):
        assert type(mine) is type(theirs)
        if isinstance(mine, Gumbel) and isinstance(theirs, Gumbel):
            assert 0 < np.count_nonzero(mine.probs) < width
            np.testing.assert_array_equal(mine.probs, theirs.probs)


def test_a_shortlist_is_q_without_what_is_light() -> None:
    ids = np.arange(2000)
    probs = process_logits(6 * logits(2000), SamplingParams(temperature=1.0), [], [])
    short = shortlist(probs, ids)
    kept = probs >= LIGHT * probs.max()
    assert short.ids.tolist() == np.flatnonzero(kept).tolist() and len(short.ids) < 300
    np.testing.assert_allclose(short.probs, probs[kept] / probs[kept].sum(), rtol=1e-6)


@pytest.mark.parametrize("width", [1024, 5000])
@pytest.mark.parametrize("scale", [3, 6])
@pytest.mark.parametrize("filters", [{}, {"top_k": 20}, {"top_p": 0.9, "temperature": 0.7}])
def test_the_cores_shortlist_and_race_are_numpys(
    width: int, scale: int, filters: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    params = SamplingParams(**({"temperature": 1.0} | filters))
    row, ids = scale * logits(width), np.arange(width) * 2
    ours = processed_shortlist(row, params, ids)
    theirs = shortlist(process_logits(row, params, [], []), ids)
    np.testing.assert_array_equal(ours.ids, theirs.ids)
    np.testing.assert_allclose(ours.probs, theirs.probs, rtol=1e-5)
    vocabulary, stream = TrimmedVocabulary(2 * width), Noise(5).cycle(3).pick(1)
    drawn = first_arrivals(ours, vocabulary, stream, 4)
    assert drawn[0] == shipped_race(ours.spread(vocabulary), stream, 4)
    monkeypatch.setattr("slipstream.kernels.shortlist.present", lambda: False)
    plain = first_arrivals(ours, vocabulary, stream, 4)
    assert plain[0] == drawn[0]
    np.testing.assert_allclose(plain[1], drawn[1], rtol=1e-12)
    with pytest.raises(NumericalError):
        processed_shortlist(np.full(width, np.nan, np.float32), params, ids)


def test_a_flat_q_and_a_small_one_are_left_whole() -> None:
    flat = process_logits(3 * logits(20000), SamplingParams(temperature=1.0), [], [])
    assert flat[flat >= LIGHT * flat.max()].sum() < MOST
    nothing = np.zeros(2000, np.float32)
    small = process_logits(6 * logits(1000), SamplingParams(temperature=1.0), [], [])
    for probs in (flat, nothing, small):
        assert shortlist(probs, np.arange(len(probs))).probs is probs


def test_a_static_greedy_tree_is_that_of_the_best_tokens() -> None:
    """It is drawn without working out how likely they are."""
    rows = [logits(3000, seed) for seed in range(3)]
    builder = builder_of("greedy", 3000)
    growth = StaticGrowth(builder, Shape.from_paths([[0], [1], [0, 0], [0, 1], [1, 0]]))
    growth.grow([rows[0]])
    growth.grow([rows[1], rows[2]])
    first, second, third = (np.argsort(-row)[:2].tolist() for row in rows)
    assert builder.tokens == [*first, *second, third[0]]
    broken = StaticGrowth(builder_of("greedy", 3000), Shape.chain(2))
    broken.grow([np.full(3000, np.nan, np.float32)])
    assert len(broken.draft()) == 0


def test_top_ranks_by_value_then_by_id() -> None:
    assert top(np.array([0.1, 0.3, 0.3, 0.0, 0.3]), 2) == [1, 2]
    assert top(np.array([0.1, 0.0, 0.9]), 3) == [2, 0]
    assert top(np.array([0.0, 0.0]), 1) == [] and top(np.array([1.0]), 0) == []
    assert top(np.array([-2.0, -1.0, -math.inf]), 3, above=-math.inf) == [1, 0]


@pytest.mark.parametrize("size", [1024, 1500, 16384])
def test_among_many_values_the_top_is_that_of_a_sort(size: int) -> None:
    rng = np.random.default_rng(size)
    for values in (rng.random(size), np.round(rng.random(size), 2), np.arange(size) % 3 * 1.0):
        order = np.lexsort((np.arange(size), -values))
        for count in (1, 2, 8, 100):
            assert top(values, count) == order[:count][values[order[:count]] > 0].tolist()


def test_slots_are_valued_before_the_draw_and_never_above_their_node() -> None:
    probs = np.array([0.6, 0.3, 0.1, 0.0])
    for draw in ("sampled", "top-then-sampled"):
        values = slot_confidences(probs, 3, draw)
        assert values == sorted(values, reverse=True) and sum(values) <= 1.0 + 1e-12
