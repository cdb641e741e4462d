"""Each kind of drafter learns; a killed run ends where one that wasn't does; failures lose nothing.

The target is a random one, so what can be learnt is little; that it is learnt must still show.
"""

from __future__ import annotations

import json
import math
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from slipstream.drafters.checkpoint import load_drafter
from slipstream.errors import CorruptModel, InvalidInput, NumericalError, SlipstreamError
from slipstream.training import run_record, training_state
from slipstream.training.corpus import Corpus
from slipstream.training.distillation import Distillation, Objective
from slipstream.training.evaluation import evaluate
from slipstream.training.manifest import open_data
from slipstream.training.recipes import describe, make_network, start_from
from slipstream.training.target import FrozenTarget
from slipstream.training.trainer import Trainer, TrainerSettings

MakeTrainer = Callable[..., Trainer]


@pytest.fixture
def make_trainer(easy_data: Path, easy_target: FrozenTarget, tmp_path: Path) -> MakeTrainer:
    """A trainer over the tiny data: (architecture, tokens, output, objective, **settings)."""

    def make(
        architecture: Any = "eagle",
        tokens: int = 4000,
        output: Path | None = None,
        objective: Objective | None = None,
        **settings: Any,
    ) -> Trainer:
        corpus = Corpus(open_data(easy_data, easy_target.identity), length=128, rows=4)
        values = {"evaluate_every": 10**9, "held_out_tokens": 2000, "depths": 2} | settings
        network = make_network(architecture, easy_target, corpus, heads=2, layers=(1,))
        return Trainer(
            network=network,
            target=easy_target,
            corpus=corpus,
            objective=objective or Objective(depths=2, noise=0.05),
            settings=TrainerSettings(tokens=tokens, **values),
            output=output or tmp_path / "run",
            config=describe(network, easy_target, "Apache-2.0"),
        )

    return make


RECIPES: dict[str, tuple[Objective, float, int, float]] = {
    "draft": (Objective(feature_weight=0.0), 3e-3, 20_000, 0.3),
    "medusa": (Objective(depths=2, feature_weight=0.0), 1e-2, 40_000, 0.06),
    "eagle": (Objective(depths=2, noise=0.02, feature_weight=0.1), 3e-3, 20_000, 0.2),
}
"""Objective, learning rate, tokens, and the least acceptance they must come to."""


@pytest.mark.parametrize("architecture", sorted(RECIPES))
def test_training_raises_held_out_acceptance_well_above_its_start(
    architecture: str, make_trainer: MakeTrainer, easy_target: FrozenTarget
) -> None:
    objective, rate, tokens, least = RECIPES[architecture]
    trainer = make_trainer(architecture, tokens, objective=objective, learning_rate=rate)
    if architecture == "eagle":  # its own start is a fit already; learn from nothing here
        draw = torch.Generator().manual_seed(0)
        with torch.no_grad():
            fc: Any = trainer.network.fc  # type: ignore[attr-defined]
            fc.weight.copy_(torch.randn(fc.weight.shape, generator=draw) / 10)
    trainer.run()
    curve = run_record.read_curve(trainer.output)
    first, last = curve[0], curve[-1]
    assert last["greedy"][0] > max(1.7 * first["greedy"][0], least)
    assert last["alpha"][0] > 1.4 * first["alpha"][0]
    assert last["acceptance_length"] > first["acceptance_length"] + least / 2
    checkpoint = load_drafter(trainer.output, easy_target.identity)
    assert checkpoint.config.architecture == architecture
    assert checkpoint.config.training["tokens"] <= trainer.settings.tokens + 512
    best = max(curve, key=lambda entry: entry["acceptance_length"])
    assert checkpoint.config.rank_accuracy[0][0] == best["greedy"][0]


def test_a_trimmed_vocabulary_travels_with_the_drafter(
    make_trainer: MakeTrainer, easy_target: FrozenTarget
) -> None:
    import numpy as np

    trainer = make_trainer("draft", 1000, objective=Objective(others=20, positions=16))
    trainer.vocabulary = np.arange(1, 300, 3)
    trainer.run()
    checkpoint = load_drafter(trainer.output, easy_target.identity)
    assert checkpoint.vocabulary is not None
    assert checkpoint.vocabulary.tolist() == list(range(1, 300, 3))


def test_what_is_measured_is_what_is_saved(
    make_trainer: MakeTrainer, easy_target: FrozenTarget
) -> None:
    """The figures are those of the rounded weights in the file, not of those under training."""
    trainer = make_trainer("draft", 1500, objective=Objective(feature_weight=0.0))
    trainer.run()
    saved = load_drafter(trainer.output, easy_target.identity)
    assert "q8_0" in {saved.stored(name).format for name in saved.names()}
    best = max(run_record.read_curve(trainer.output), key=lambda e: e["acceptance_length"])
    start_from(trainer.network, trainer.output, easy_target)
    distillation = Distillation(trainer.network, easy_target, trainer.objective, None)
    held_out = trainer.corpus.held_out(trainer.settings.held_out_tokens)
    found = evaluate(distillation, held_out, trainer.settings.depths).as_dict()
    assert list(found["greedy"]) == best["greedy"]
    assert list(found["alpha"]) == pytest.approx(best["alpha"], rel=1e-6)


def test_a_run_can_start_from_an_earlier_drafter(
    make_trainer: MakeTrainer, easy_target: FrozenTarget, tmp_path: Path
) -> None:
    first = make_trainer("draft", 1000)
    first.run()
    network = make_network("draft", easy_target, first.corpus, layers=(1,))
    start_from(network, first.output, easy_target)
    saved = load_drafter(first.output)
    for name, value in network.state_dict().items():
        assert torch.equal(value, torch.from_numpy(saved.tensor(name).copy())), name
    other = make_network("draft", easy_target, first.corpus, layers=(0, 1))
    with pytest.raises(InvalidInput, match="tensors are not those"):
        start_from(other, first.output, easy_target)


def test_an_eagle_drafter_grows_by_a_block_that_changes_nothing_yet(
    make_trainer: MakeTrainer, easy_target: FrozenTarget, tmp_path: Path
) -> None:
    first = make_trainer("eagle", 1000)
    first.run()
    grown = make_network("eagle", easy_target, first.corpus, blocks=2)
    start_from(grown, first.output, easy_target)
    same = make_network("eagle", easy_target, first.corpus)
    start_from(same, first.output, easy_target)
    (batch, *_) = first.corpus.batches(0)
    for one, other in zip(
        same(batch, easy_target.embedding, 2), grown(batch, easy_target.embedding, 2), strict=True
    ):
        assert torch.equal(one, other)
    saved, config = tmp_path / "grown", describe(grown, easy_target, "Apache-2.0")
    training_state.save_network(saved, grown, config, None)
    with pytest.raises(InvalidInput, match="tensors are not those"):
        start_from(same, saved, easy_target)


def test_the_first_share_of_a_run_may_train_one_depth_alone(
    make_trainer: MakeTrainer,
) -> None:
    trainer = make_trainer("eagle", objective=Objective(depths=2, shallow=0.5))
    distillation = Distillation(trainer.network, trainer.target, trainer.objective, None)
    (batch, *_) = trainer.corpus.batches(0)
    one = Distillation(trainer.network, trainer.target, Objective(depths=1), None)
    early, late = (float(distillation(batch, 0, done)[1]["loss"]) for done in (0.4, 0.5))
    assert early == float(one(batch, 0)[1]["loss"])
    assert late != early


SCRIPT = """
import sys
from pathlib import Path
import torch
torch.set_num_threads(1)
from slipstream.models.loader import open_checkpoint
from slipstream.training.corpus import Corpus
from slipstream.training.distillation import Objective
from slipstream.training.manifest import open_data
from slipstream.training.recipes import describe, make_network
from slipstream.training.target import FrozenTarget
from slipstream.training.trainer import Trainer, TrainerSettings

model, data, output = sys.argv[1:4]
target = FrozenTarget.from_checkpoint(open_checkpoint(model))
corpus = Corpus(open_data(Path(data)), length=128, rows=4)
network = make_network("eagle", target, corpus)
Trainer(
    network=network, target=target, corpus=corpus,
    objective=Objective(depths=2, noise=0.05, others=40, positions=32),
    settings=TrainerSettings(
        tokens=16_000, accumulate=2, evaluate_every=4000, held_out_tokens=500, depths=2,
        save_steps=3,
    ),
    output=Path(output), config=describe(network, target, ""),
).run()
"""


def test_a_run_that_was_killed_ends_in_the_same_weights(
    easy_model_dir: Path, easy_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kill -9 in mid-run and resumed, against a run that nobody disturbed: equal bit for bit."""
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    arguments = [str(easy_model_dir), str(easy_data), str(killed)]
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments])
    deadline = time.monotonic() + 60
    while not training_state.checkpoints(killed) and time.monotonic() < deadline:
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (first, *_) = training_state.checkpoints(killed)
    stopped_at = training_state.load_state(first)["progress"]
    assert stopped_at.tokens < 16_000
    for output in (killed, whole):
        monkeypatch.setattr(sys, "argv", ["train", *arguments[:2], str(output)])
        exec(compile(SCRIPT, "train", "exec"), {})

    one, two = (training_state.checkpoints(path)[-1] for path in (killed, whole))
    assert one.name == two.name
    states = [training_state.load_state(path) for path in (one, two)]
    assert states[0]["progress"] == states[1]["progress"]
    for name, value in states[0]["weights"].items():
        assert torch.equal(value, states[1]["weights"][name]), name
    assert run_record.read_curve(killed) == run_record.read_curve(whole)
    for file in ("config.json", "model.safetensors"):
        assert (killed / file).read_bytes() == (whole / file).read_bytes()


def test_a_loss_that_is_no_number_stops_the_run_and_keeps_its_checkpoints(
    make_trainer: MakeTrainer,
) -> None:
    trainer = make_trainer(tokens=1500, save_steps=1)
    trainer.run()
    before = training_state.checkpoints(trainer.output)
    broken = make_trainer(tokens=1500, save_steps=1, output=trainer.output)
    with torch.no_grad():
        broken.network.fc.bias.fill_(math.nan)  # type: ignore[attr-defined]
    for path in before:
        (path / "state.pt").rename(path / "kept")
    for path in before:
        path.rename(path.with_name(f"kept-{path.name}"))
    with pytest.raises(NumericalError, match="learning rate"):
        broken.run()
    assert not training_state.checkpoints(trainer.output)


def test_a_full_disk_is_a_clear_error_and_earlier_checkpoints_stay(
    make_trainer: MakeTrainer, monkeypatch: pytest.MonkeyPatch, easy_target: FrozenTarget
) -> None:
    trainer = make_trainer(tokens=1500, save_steps=1)
    trainer.run()
    before = {p: p.read_bytes() for p in trainer.output.rglob("*") if p.is_file()}
    longer = make_trainer(tokens=1500, save_steps=1)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    state = training_state.load_state(training_state.checkpoints(trainer.output)[-1])
    with pytest.raises(SlipstreamError, match="No space left"):
        training_state.save_state(
            trainer.output,
            training_state.Progress(step=99),
            longer.network,
            torch.optim.AdamW(longer.network.parameters()),  # type: ignore[attr-defined]
            longer.config,
            None,
            state["run"],
        )
    assert {p: p.read_bytes() for p in trainer.output.rglob("*") if p.is_file()} == before


def test_another_runs_checkpoint_is_refused_and_named(make_trainer: MakeTrainer) -> None:
    make_trainer(tokens=1000).run()
    with pytest.raises(InvalidInput, match="trainer"):
        make_trainer(tokens=1000, learning_rate=0.5).run()
    with pytest.raises(InvalidInput, match="objective"):
        make_trainer(tokens=1000, objective=Objective(loss="tv")).run()
    with pytest.raises(InvalidInput, match="architecture 'eagle'"):
        make_trainer("draft", tokens=1000).run()


def test_a_damaged_checkpoint_is_refused(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(tokens=1000)
    trainer.run()
    state = training_state.checkpoints(trainer.output)[-1] / "state.pt"
    state.write_bytes(state.read_bytes()[:1000])
    with pytest.raises(CorruptModel, match=r"state\.pt"):
        make_trainer(tokens=1000).run()


def test_a_finished_run_is_left_alone(make_trainer: MakeTrainer) -> None:
    first = make_trainer(tokens=1000)
    done = first.run()
    curve = (first.output / "curve.jsonl").read_bytes()
    assert make_trainer(tokens=1000).run() == done
    assert (first.output / "curve.jsonl").read_bytes() == curve


def test_a_run_that_no_longer_improves_stops_early(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(
        "draft", tokens=10**6, learning_rate=1e-9, evaluate_every=400, patience=3
    )
    done = trainer.run()
    assert done.stale == 3 and done.tokens < 10_000


def test_the_record_says_what_was_run_and_draws_its_curve(make_trainer: MakeTrainer) -> None:
    trainer = make_trainer(tokens=1000, evaluate_every=300)
    trainer.arguments = {"model": "tiny", "output": trainer.output}
    trainer.run()
    record = json.loads((trainer.output / "run.json").read_text(encoding="utf-8"))
    assert record["arguments"]["model"] == "tiny"
    assert record["data_fingerprint"] == trainer.corpus.fingerprint
    assert record["versions"]["torch"] == torch.__version__
    for name in ("curve.svg", "curve.png"):
        run_record.plot(trainer.output, trainer.output / name)
        assert (trainer.output / name).stat().st_size > 1000
    with pytest.raises(InvalidInput, match="can't be drawn"):
        run_record.plot(trainer.output, trainer.output / "curve.xyz")
    with pytest.raises(InvalidInput, match="no measurements"):
        run_record.plot(trainer.output / "nowhere", trainer.output / "curve.svg")
