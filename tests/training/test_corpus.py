"""Packing, order, the drafter's vocabulary and the sample of tokens that a step looks at."""

from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from slipstream.errors import CorruptModel, InvalidInput
from slipstream.training.corpus import Corpus
from slipstream.training.distillation import Distillation, Objective
from slipstream.training.drafter_vocabulary import choose, count_tokens, coverage
from slipstream.training.evaluation import evaluate
from slipstream.training.manifest import DataDirectory, open_data, shard_path
from slipstream.training.networks import Batch
from slipstream.training.recipes import make_network
from slipstream.training.shards import from_bf16, read_shard, write_shard
from slipstream.training.target import FrozenTarget


@pytest.fixture(scope="module")
def data(tiny_data: Path) -> DataDirectory:
    return open_data(tiny_data)


def conversations(batches: list[Batch]) -> list[tuple[int, ...]]:
    found = []
    for batch in batches:
        for tokens, documents in zip(batch.tokens, batch.documents, strict=True):
            for number in range(int(documents.max()) + 1):
                found.append(tuple(tokens[documents == number].tolist()))
    return sorted(found)


def test_an_epoch_holds_every_training_conversation_once(data: DataDirectory) -> None:
    corpus = Corpus(data, length=200, rows=1)
    expected = sorted(
        tuple(shard.tokens[shard.offsets[i] : shard.offsets[i + 1]].tolist())
        for shard in corpus.shards
        for i in range(len(shard))
        if not shard.held_out[i]
    )
    assert conversations(list(corpus.batches(0))) == expected
    assert conversations(list(corpus.batches(1))) == expected
    assert corpus.tokens == sum(map(len, expected))
    held_out = conversations(corpus.held_out(10**6))
    assert held_out and not set(held_out) & set(expected)


def test_several_directories_are_one_corpus_without_repeats(
    data: DataDirectory, tmp_path: Path
) -> None:
    for path in (data.path / "manifest.json", data.shards[0]):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    part = open_data(tmp_path)
    whole = Corpus(data, length=200, rows=1)
    both = Corpus(part, data, length=200, rows=1)
    assert both.tokens == whole.tokens > Corpus(part).tokens
    assert conversations(list(both.batches(0))) == conversations(list(whole.batches(0)))
    assert len({both.fingerprint, whole.fingerprint, Corpus(data, part).fingerprint}) == 3


def test_order_follows_from_seed_and_epoch(data: DataDirectory) -> None:
    def first(seed: int, epoch: int) -> Any:
        return next(Corpus(data, length=200, rows=2, seed=seed).batches(epoch)).tokens

    assert torch.equal(first(0, 0), first(0, 0))
    assert not torch.equal(first(0, 0), first(0, 1))
    assert not torch.equal(first(0, 0), first(1, 0))


def test_any_batch_can_be_gone_on_with(data: DataDirectory) -> None:
    corpus = Corpus(data, length=128, rows=2)
    whole = list(corpus.batches(3))
    rest = list(corpus.batches(3, start=4))
    assert len(rest) == len(whole) - 4
    for one, two in zip(whole[4:], rest, strict=True):
        assert all(torch.equal(a, vars(two)[name]) for name, a in vars(one).items())


def test_learnt_positions_are_those_before_an_answers_tokens(data: DataDirectory) -> None:
    corpus = Corpus(data, length=200, rows=2)
    for batch in islice(corpus.batches(0), 3):
        assert (batch.normalisers != 0).equal(batch.learn)
        assert not batch.learn[batch.documents < 0].any()
        greedy = batch.learn & (batch.temperatures == 0)
        following = torch.roll(batch.tokens, -1, dims=1)
        assert torch.equal(following[greedy], batch.top_ids[greedy][:, 0])


def test_features_can_be_recomputed_instead_of_kept(
    data: DataDirectory, tiny_data: Path, tmp_path: Path
) -> None:
    kept = Corpus(data, length=200, rows=2)
    for path in data.shards:
        shard = read_shard(path)
        write_shard(tmp_path / path.name, dataclasses.replace(shard, features=shard.features[:0]))
    bare = dataclasses.replace(
        data, path=tiny_data, shards=tuple(tmp_path / path.name for path in data.shards)
    )
    with pytest.raises(InvalidInput, match="no features"):
        Corpus(bare)
    known = {
        tuple(s.tokens[a:b].tolist()): from_bf16(s.features[a:b])
        for s in kept.shards
        for a, b in zip(s.offsets[:-1], s.offsets[1:], strict=True)
    }
    again = Corpus(bare, length=200, rows=2, recompute=lambda tokens: known[tuple(tokens)])
    for one, two in zip(kept.batches(0), again.batches(0), strict=True):
        assert torch.equal(one.features, two.features)


def test_damaged_and_missing_text_is_refused(data: DataDirectory, tmp_path: Path) -> None:
    for path in (data.path / "manifest.json", data.shards[0]):
        (tmp_path / path.name).write_bytes(path.read_bytes())
    whole = data.shards[1].read_bytes()
    shard_path(tmp_path, 1).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(CorruptModel, match="truncated"):
        Corpus(open_data(tmp_path))
    shard_path(tmp_path, 1).unlink()
    shard_path(tmp_path, 0).unlink()
    with pytest.raises(InvalidInput, match="no text"):
        Corpus(open_data(tmp_path))


def test_a_drafter_vocabulary_holds_the_most_said_tokens(data: DataDirectory) -> None:
    corpus = Corpus(data)
    counts = count_tokens(corpus.shards, 320, held_out=False)
    ids = choose(counts, 100, always=[1, 3])
    assert ids is not None and len(ids) == 100 and (np.diff(ids) > 0).all()
    assert {1, 3} <= set(ids.tolist())
    assert counts[ids].sum() >= np.sort(counts)[-98:].sum()
    assert coverage(counts, ids) == counts[ids].sum() / counts.sum()
    assert choose(counts, 320) is None and coverage(counts, None) == 1.0
    with pytest.raises(InvalidInput, match="too small"):
        choose(counts, 1, always=[1, 3])


def test_a_sampled_loss_estimates_the_whole_one(
    data: DataDirectory, frozen_target: FrozenTarget
) -> None:
    corpus = Corpus(data, length=128, rows=4)
    network = make_network("draft", frozen_target, corpus, layers=(0, 2))
    batch = next(corpus.batches(0))
    values = {}
    for others, positions, seeds in ((0, 0, 1), (60, 0, 40), (60, 16, 80)):
        objective = Objective(
            loss="kl", others=others, positions=positions, feature_weight=0, greedy_share=0
        )
        distillation = Distillation(network, frozen_target, objective, None)
        losses = [float(distillation(batch, seed)[1]["loss"]) for seed in range(seeds)]
        values[others, positions] = sum(losses) / seeds
    assert values[60, 0] == pytest.approx(values[0, 0], rel=0.03)
    assert values[60, 16] == pytest.approx(values[0, 0], rel=0.06)


def test_alpha_of_a_trimmed_drafter_is_against_the_full_vocabulary(
    data: DataDirectory, frozen_target: FrozenTarget
) -> None:
    """All the target's blocks and half its tokens: what it loses is exactly what it can't say."""
    corpus = Corpus(data, length=128, rows=4)
    network = make_network("draft", frozen_target, corpus, layers=(0, 1, 2))
    held_out = corpus.held_out(2000)

    def measured(ids: Any) -> Any:
        return evaluate(Distillation(network, frozen_target, Objective(), ids), held_out, 2)

    full = measured(None)
    assert full.alpha[0] > 0.98 and full.greedy[0] > 0.98
    assert full.acceptance_length is not None and full.acceptance_length > 2.9
    ids = np.arange(0, 320, 2)
    trimmed = measured(ids)
    best, inside = [], []
    for batch in held_out:
        at = batch.judged(1)
        p = torch.softmax(batch.features[at] @ frozen_target.head.T, -1)
        inside.append(p[:, ids].sum(-1))
        best.append(batch.top_ids[at][:, 0] % 2 == 0)
    assert trimmed.alpha[0] == pytest.approx(float(torch.cat(inside).mean()), abs=0.01)
    assert trimmed.greedy[0] == pytest.approx(float(torch.cat(best).float().mean()), abs=0.02)
