"""The draft model reads exactly the text, and draws exactly what its receipts say."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from slipstream.drafters.base import Budget, Observation
from slipstream.drafters.draft_model import DraftModel
from slipstream.drafters.vocabulary import SharedVocabulary
from slipstream.models.reference import ReferenceModel
from slipstream.sampling.noise import Noise
from slipstream.sampling.processors import process_logits
from slipstream.sampling.race import race
from slipstream.types import Draft, DrawMethod, Gumbel, PointMass, Sampled, TopThenSampled

V = 12
Make = Callable[..., Any]
Logits = Callable[[Sequence[int], int], Any]


def drafter_of(model: Any) -> DraftModel:
    return DraftModel(model, SharedVocabulary(V, V))


def propose(drafter: DraftModel, sequence: Any, depth: int, draw: DrawMethod = "greedy") -> Draft:
    [draft] = drafter.propose([sequence], [Budget(depth=depth, nodes=depth)], draw)
    return draft


def accept(drafter: DraftModel, sequence: Any, draft: Draft, count: int, token: int) -> None:
    """Commit ``count`` drafted tokens and one more."""
    sequence.tokens += [*draft.tree.tokens[:count], token]
    drafter.observe([Observation(sequence, count + 1, tuple(range(count)))])


def another(token: int) -> int:
    return (token + 1) % V


def test_every_token_comes_from_its_receipt_with_its_own_prefix(
    context_model: Make, request_of: Make, logits_of: Logits
) -> None:
    settings: list[tuple[DrawMethod, type]] = [
        ("sampled", Sampled),
        ("gumbel", Gumbel),
        ("top-then-sampled", TopThenSampled),
    ]
    for draw, receipt_type in settings:
        # The penalty makes each distribution depend on the drafted tokens before it.
        params = {"temperature": 0.8, "top_k": 6, "frequency_penalty": 2.0}
        sequence = request_of([1, 2, 3, 4], **params)
        sequence.prompt_length = 2
        draft = propose(drafter_of(context_model(V)), sequence, 5, draw)
        noise = Noise(sequence.seed).cycle(sequence.length)
        prefix: list[int] = []
        for depth, (token, receipt) in enumerate(
            zip(draft.tree.tokens, draft.receipts[:-1], strict=True)
        ):
            logits_V = logits_of([1, 2, 3, 4, *prefix], V)
            probs_V = process_logits(logits_V, sequence.params, [1, 2], [3, 4, *prefix])
            assert type(receipt) is receipt_type
            assert np.array_equal(cast(Any, receipt).probs, probs_V)
            stream = noise.pick(depth) if draw == "gumbel" else noise.draft(depth, depth)
            assert race(probs_V, stream, 1) == [token]
            prefix.append(token)


def test_a_greedy_draft_is_the_model_s_best_and_a_point_mass(
    context_model: Make, request_of: Make, logits_of: Logits
) -> None:
    sequence = request_of([5, 6, 7], temperature=1.0)
    draft = propose(drafter_of(context_model(V)), sequence, 3)
    text = [5, 6, 7]
    for token in draft.tree.tokens:
        assert token == int(np.argmax(logits_of(text, V)))
        text.append(token)
    assert draft.receipts == (PointMass(), PointMass(), PointMass(), None)


def test_the_cache_is_the_text_whatever_happened_before(
    context_model: Make, request_of: Make
) -> None:
    rng = random.Random(1)
    model = context_model(V)
    drafter = drafter_of(model)
    sequences = [request_of([uid, 2, 3], uid=uid) for uid in range(3)]
    for sequence in sequences:
        drafter.begin(sequence, None)
    for _ in range(60):
        depths = [rng.choice([0, 0, 1, 3, 5]) for _ in sequences]
        budgets = [Budget(depth=depth, nodes=9) for depth in depths]
        drafts = drafter.propose(sequences, budgets, "greedy")
        observations = []
        for sequence, draft in zip(sequences, drafts, strict=True):
            # What a drafter without history would have drafted for this text:
            fresh = propose(drafter_of(context_model(V)), sequence, len(draft))
            assert draft == fresh
            kept = rng.randint(0, len(draft))
            following = draft.tree.tokens[kept] if kept < len(draft) else 0
            sequence.tokens += [*draft.tree.tokens[:kept], another(following)]
            observations.append(Observation(sequence, kept + 1, tuple(range(kept))))
        if rng.random() < 0.8:  # a missed observation costs rows, never correctness
            drafter.observe(observations)
        texts = {sequence.tokens[0]: sequence.tokens for sequence in sequences}
        for cached in filter(None, model.cache.values()):
            text = texts[cached[0]]
            assert cached == text[: len(cached)]
            assert len(cached) < len(text)
        if rng.random() < 0.1:  # a request starts over
            sequence = sequences[0]
            del sequence.tokens[3:]
            sequences = [*sequences[1:], sequence]
            drafter.begin(sequence, None)


def test_a_level_is_one_pass_and_nothing_is_fed_twice(
    context_model: Make, request_of: Make
) -> None:
    model = context_model(V)
    drafter = drafter_of(model)
    a, b = request_of([1, 2, 3], uid=1), request_of([4, 5], uid=2)
    budgets = [Budget(depth=3, nodes=3), Budget(depth=2, nodes=2)]
    first, second = drafter.propose([a, b], budgets, "greedy")
    assert model.passes == [3 + 2, 1 + 1, 1]
    # Full acceptance: the last drafted token was never fed, and follows with the bonus token.
    accept(drafter, a, first, 3, 0)
    accept(drafter, b, second, 0, another(second.tree.tokens[0]))
    model.passes.clear()
    drafter.propose([a, b], budgets, "greedy")
    assert model.passes == [2 + 1, 1 + 1, 1]


def test_after_cycles_without_a_draft_it_catches_up_in_one_chunk(
    context_model: Make, request_of: Make
) -> None:
    model = context_model(V)
    drafter = drafter_of(model)
    sequence = request_of([1, 2])
    propose(drafter, sequence, 1)
    for token in range(6):
        assert propose(drafter, sequence, 0) == Draft()
        accept(drafter, sequence, Draft(), 0, token)
    model.passes.clear()
    propose(drafter, sequence, 1)
    assert model.passes == [6]


def test_a_long_prompt_is_prefilled(context_model: Make, request_of: Make) -> None:
    model = context_model(V)
    drafter = drafter_of(model)
    propose(drafter, request_of([1] * 500), 2)
    assert model.passes == [499, 1, 1]


def test_near_the_end_of_its_context_it_drafts_less_and_then_nothing(
    context_model: Make, request_of: Make
) -> None:
    for length, expected in [(6, 5), (8, 3), (10, 1), (11, 0), (30, 0)]:
        drafter = drafter_of(context_model(V, max_context=10))
        assert len(propose(drafter, request_of([1] * length), 5)) == expected


def test_narrow_and_padded_vocabularies_meet_in_the_target_s_width(
    context_model: Make, request_of: Make
) -> None:
    for draft_width, width, common in [(12, 16, 12), (12, 10, 10), (12, 14, 9)]:
        drafter = DraftModel(context_model(draft_width), SharedVocabulary(common, width))
        sequence = request_of([1, 2, 3], temperature=5.0)
        draft = propose(drafter, sequence, 8, "sampled")
        assert max(draft.tree.tokens) < common
        for receipt in draft.receipts[:-1]:
            assert isinstance(receipt, Sampled)
            assert receipt.probs.shape == (width,)
            assert not receipt.probs[common:].any()


def test_a_token_that_it_cannot_read_ends_its_drafting(
    context_model: Make, request_of: Make
) -> None:
    drafter = DraftModel(context_model(V), SharedVocabulary(V, V + 3))
    sequence = request_of([1, 2])
    draft = propose(drafter, sequence, 2)
    accept(drafter, sequence, draft, 1, V + 1)
    assert propose(drafter, sequence, 2) == Draft()


def test_where_nothing_may_be_drafted_the_chain_ends(context_model: Make, request_of: Make) -> None:
    drafter = DraftModel(context_model(V), SharedVocabulary(V, V + 3))
    sequence = request_of([1, 2], allowed_token_ids=(V + 1,))
    assert propose(drafter, sequence, 3) == Draft()


def test_an_ended_request_leaves_nothing(context_model: Make, request_of: Make) -> None:
    model = context_model(V)
    drafter = drafter_of(model)
    sequence = request_of([1, 2])
    propose(drafter, sequence, 2)
    drafter.end(sequence)
    drafter.end(sequence)
    assert model.cache == {}


@pytest.mark.usefixtures("one_torch_thread")
def test_in_torch_it_drafts_what_it_drafts_in_numpy(
    tiny_model_dir: Path, tiny_reference: ReferenceModel, request_of: Make
) -> None:
    # Imported here: it takes seconds, and only this test needs torch.
    from slipstream.models.hf import HuggingFaceModel

    torch_model = HuggingFaceModel.from_pretrained(tiny_model_dir, device="cpu")
    for draw in ("sampled", "gumbel", "greedy", "top-then-sampled"):
        drafts = []
        for model in (tiny_reference, torch_model):
            drafter = DraftModel(model, SharedVocabulary(310, 330))
            sequences = [
                request_of([5, 6, 7], uid=1, temperature=0.9, top_p=0.95),
                request_of([8, 9], uid=2, temperature=1.2, repetition_penalty=1.3),
            ]
            budgets = [Budget(depth=4, nodes=4), Budget(depth=2, nodes=2)]
            first = drafter.propose(sequences, budgets, draw)
            for sequence, draft in zip(sequences, first, strict=True):
                accept(drafter, sequence, draft, 2, 3)
            drafts += [first, drafter.propose(sequences, budgets, draw)]
        for of_numpy, of_torch in zip(drafts[0] + drafts[1], drafts[2] + drafts[3], strict=True):
            assert of_numpy.tree == of_torch.tree
            for mine, theirs in zip(of_numpy.receipts, of_torch.receipts, strict=True):
                assert type(mine) is type(theirs)
                if hasattr(mine, "probs"):
                    np.testing.assert_allclose(mine.probs, theirs.probs.numpy(), atol=1e-5)
