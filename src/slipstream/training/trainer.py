"""The training loop: AdamW, warm-up and cosine, clipping, measurements, checkpoints, early stop.

The same for all drafters: a :class:`Distillation` says what is minimised, this says how. Runs in
one process or in many through accelerate (``torchrun``, ``accelerate launch``); every process reads
the same plan and takes its share of each step's batches. Nothing is drawn from a global generator,
so a run that was killed and resumed ends in the same weights as one that wasn't.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from slipstream.drafters.checkpoint_config import DrafterConfig
from slipstream.errors import InvalidInput, NumericalError
from slipstream.training import run_record, training_state
from slipstream.training.corpus import Corpus
from slipstream.training.distillation import Distillation, Objective
from slipstream.training.evaluation import HeldOut, evaluate
from slipstream.training.networks import Batch, Network
from slipstream.training.target import FrozenTarget
from slipstream.training.training_state import Precision, Progress


@dataclass(frozen=True, kw_only=True)
class TrainerSettings:
    """How to minimise.

    Args:
        tokens: text tokens to see in all, repetitions included; the schedule ends there.
        learning_rate: at the end of the warm-up.
        warmup: share of the run until then.
        final_rate: share of the learning rate at the end of the cosine.
        weight_decay: of AdamW, on matrices.
        clip: largest norm of the gradient.
        accumulate: batches per step.
        seed: of order, noise and samples.
        precision: ``f32``, ``bf16`` (autocast) or ``auto``: bf16 on a GPU.
        store: format of the saved drafter's matrices; what is measured is always what is saved.
        evaluate_every: tokens between measurements.
        held_out_tokens: text measured on.
        depths: how deep is measured.
        save_minutes: between checkpoints; one is also made at every improvement's measurement.
        save_steps: between checkpoints by count; 0 is never.
        patience: stop after so many measurements without a better one; 0 is never.
    """

    tokens: int
    learning_rate: float = 1e-3
    warmup: float = 0.02
    final_rate: float = 0.05
    weight_decay: float = 0.0
    clip: float = 1.0
    accumulate: int = 1
    seed: int = 0
    precision: Literal["auto", "f32", "bf16"] = "auto"
    store: Precision = "q8_0"
    evaluate_every: int = 250_000
    held_out_tokens: int = 20_000
    depths: int = 4
    save_minutes: float = 5.0
    save_steps: int = 0
    patience: int = 0

    def __post_init__(self) -> None:
        for name in ("tokens", "accumulate", "evaluate_every", "held_out_tokens", "depths"):
            if getattr(self, name) < 1:
                raise InvalidInput(f"{name} must be at least 1, not {getattr(self, name)}")
        if not 0 < self.learning_rate < 10 or not 0 <= self.warmup < 1:
            raise InvalidInput("learning_rate must be in (0, 10) and warmup in [0, 1)")


@dataclass
class Report:
    """What a progress display may show; called after every step."""

    progress: Progress
    loss: float
    rate: float
    tokens_per_second: float
    held_out: HeldOut | None = None


@dataclass
class Trainer:
    """One run.

    Args:
        network, target, objective, vocabulary: see :class:`Distillation`.
        corpus: the text.
        settings: how.
        output: the run's directory; what it holds is resumed.
        config: of the drafter's checkpoint; training record and ranks are filled in.
        arguments: as the user gave them, for the record.
        report: called after every step.
    """

    network: Network
    target: FrozenTarget
    corpus: Corpus
    objective: Objective
    settings: TrainerSettings
    output: Path
    config: DrafterConfig
    vocabulary: npt.NDArray[np.int64] | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict)
    report: Callable[[Report], None] = lambda _: None

    def run(self) -> Progress:
        """Train to the end, or from where the output directory's last checkpoint stands.

        Raises:
            NumericalError: the loss is no number; earlier checkpoints stay.
            InvalidInput: the directory holds a run with other settings.
            CorruptModel: its checkpoint is damaged.
            SlipstreamError: the disk is full; earlier checkpoints stay.
        """
        from accelerate import Accelerator

        settings = self.settings
        bf16 = settings.precision == "bf16" or (
            settings.precision == "auto" and torch.cuda.is_available()
        )
        accelerator = Accelerator(
            mixed_precision="bf16" if bf16 else "no", cpu=not torch.cuda.is_available()
        )
        distillation = Distillation(
            self.network, self.target, self.objective, self.vocabulary, accelerator.device
        )
        optimizer: Any = torch.optim.AdamW(self._parameters(), betas=(0.9, 0.95))
        progress = self._resume(optimizer)
        model, optimizer = accelerator.prepare(distillation, optimizer)
        if accelerator.is_main_process:
            self.output.mkdir(parents=True, exist_ok=True)
            if progress.step == 0:
                run_record.write_run(self.output, self.arguments, self.corpus.fingerprint)
            run_record.cut_curve(self.output, progress.step)

        held_out = self.corpus.held_out(settings.held_out_tokens)
        if progress.step == 0 and accelerator.is_main_process:
            self._measure(distillation, held_out, progress, loss=math.nan, rate=0.0)
        if self._over(progress):
            return progress
        saved, begun, first = time.monotonic(), time.monotonic(), progress.tokens
        for batches in self._steps(progress, accelerator.num_processes):
            loss = self._step(accelerator, model, optimizer, batches, progress)
            speed = (progress.tokens - first) / max(1e-9, time.monotonic() - begun)
            report = Report(progress, loss, self._rate(progress), speed)
            due = progress.tokens - progress.measured >= settings.evaluate_every
            if due or self._over(progress):
                progress.measured = progress.tokens
                if accelerator.is_main_process:
                    report.held_out = self._measure(
                        distillation, held_out, progress, loss=loss, rate=report.rate
                    )
            stop = self._over(progress)
            by_time = time.monotonic() - saved >= settings.save_minutes * 60
            by_step = settings.save_steps and progress.step % settings.save_steps == 0
            if (stop or by_time or by_step) and accelerator.is_main_process:
                self._save(optimizer, progress)
                saved = time.monotonic()
            self.report(report)
            if accelerator.num_processes > 1:  # only the main process measured
                stop = bool(accelerator.gather(torch.tensor([stop], device=accelerator.device))[0])
            if stop:
                break
        return progress

    def _parameters(self) -> list[dict[str, Any]]:
        """The optimizer's groups: no decay on vectors, and each network's own rates."""
        groups: dict[tuple[float, float], list[Any]] = {}
        for name, parameter in self.network.named_parameters():
            rates = [rate for prefix, rate in self.network.rates.items() if name.startswith(prefix)]
            decay = self.settings.weight_decay if parameter.ndim > 1 else 0.0
            groups.setdefault((rates[0] if rates else 1.0, decay), []).append(parameter)
        return [
            {"params": parameters, "factor": factor, "weight_decay": decay}
            for (factor, decay), parameters in groups.items()
        ]

    def _over(self, progress: Progress) -> bool:
        patience = self.settings.patience
        return progress.tokens >= self.settings.tokens or 0 < patience <= progress.stale

    def _steps(self, progress: Progress, processes: int) -> Iterator[list[Batch]]:
        """The batches of each step, all processes'; ``progress`` points at the one after."""
        pending: list[Batch] = []
        while True:
            for batch in self.corpus.batches(progress.epoch, progress.batch):
                progress.batch += 1
                pending.append(batch)
                if len(pending) == self.settings.accumulate * processes:
                    yield pending
                    pending = []
            progress.epoch, progress.batch = progress.epoch + 1, 0

    def _step(
        self,
        accelerator: Any,
        model: Any,
        optimizer: Any,
        batches: list[Batch],
        progress: Progress,
    ) -> float:
        settings = self.settings
        for group in optimizer.param_groups:
            group["lr"] = self._rate(progress) * group["factor"]
        mine = batches[accelerator.process_index :: accelerator.num_processes]
        total = 0.0
        for number, batch in enumerate(mine):
            seed = _step_seed(settings.seed, progress.step, number, accelerator.process_index)
            with accelerator.autocast():
                done = progress.tokens / settings.tokens
                loss, report = model(batch.to(accelerator.device), seed, done)
            accelerator.backward(loss / len(mine))
            total += float(report["loss"]) / len(mine)
        norm = accelerator.clip_grad_norm_(model.parameters(), settings.clip)
        if not (math.isfinite(total) and math.isfinite(float(norm))):
            raise NumericalError(
                f"the loss is {total} and the gradient's norm {float(norm)} at step "
                f"{progress.step + 1}; lower the learning rate. Earlier checkpoints in "
                f"{self.output} are intact"
            )
        optimizer.step()
        optimizer.zero_grad()
        progress.step += 1
        progress.tokens += sum(int((batch.documents >= 0).sum()) for batch in batches)
        return total

    def _rate(self, progress: Progress) -> float:
        """Linear warm-up, then a cosine, by tokens."""
        settings = self.settings
        done = min(1.0, progress.tokens / settings.tokens)
        if done < settings.warmup:
            # Not quite from zero, so that the very first step learns something.
            return settings.learning_rate * (0.02 + 0.98 * done / settings.warmup)
        phase = (done - settings.warmup) / (1 - settings.warmup)
        cosine = (1 + math.cos(math.pi * phase)) / 2
        return settings.learning_rate * (settings.final_rate + (1 - settings.final_rate) * cosine)

    def _measure(
        self,
        distillation: Distillation,
        held_out: list[Batch],
        progress: Progress,
        *,
        loss: float,
        rate: float,
    ) -> HeldOut | None:
        """Measure, write it down, and keep the drafter if it is the best so far."""
        if not held_out:
            return None
        with training_state.rounded(self.network, self.settings.store):
            found: HeldOut = evaluate(distillation, held_out, self.settings.depths)
        entry: dict[str, Any] = {"step": progress.step, "tokens": progress.tokens}
        if progress.step:
            entry |= {"loss": loss, "learning_rate": rate}
        run_record.append_curve(self.output, {**entry, **found.as_dict()})
        figure = found.acceptance_length or found.greedy[0]
        if figure > progress.best:
            progress.best, progress.stale = figure, 0
            training_state.save_network(
                self.output,
                self.network,
                self._described(progress, found),
                self.vocabulary,
                self.settings.store,
            )
        else:
            progress.stale += 1
        return found

    def _described(self, progress: Progress, found: HeldOut | None) -> DrafterConfig:
        record = {
            "objective": asdict(self.objective),
            "trainer": asdict(self.settings),
            "data_fingerprint": self.corpus.fingerprint,
            "step": progress.step,
            "tokens": progress.tokens,
        }
        if found is None:
            return replace(self.config, training=record)
        return replace(
            self.config, training={**record, "held_out": found.as_dict()}, rank_accuracy=found.ranks
        )

    def _save(self, optimizer: Any, progress: Progress) -> None:
        training_state.save_state(
            self.output,
            progress,
            self.network,
            optimizer,
            self._described(progress, None),
            self.vocabulary,
            self._identity(),
            self.settings.store,
        )

    def _identity(self) -> dict[str, Any]:
        """What must be equal for a run to be resumed."""
        return {
            "target": self.config.target.fingerprint,
            "architecture": self.config.architecture,
            "data": self.corpus.fingerprint,
            "objective": asdict(self.objective),
            "trainer": asdict(self.settings),
            "vocabulary": 0 if self.vocabulary is None else len(self.vocabulary),
        }

    def _resume(self, optimizer: Any) -> Progress:
        found = training_state.checkpoints(self.output)
        if not found:
            return Progress()
        state = training_state.load_state(found[-1])
        for name, value in self._identity().items():
            if state["run"].get(name) != value:
                raise InvalidInput(
                    f"{found[-1]} belongs to a run with {name} {state['run'].get(name)!r}; this "
                    f"one has {value!r}. Go on with the same arguments or choose another directory"
                )
        self.network.load_state_dict(state["weights"])
        optimizer.load_state_dict(state["optimizer"])
        progress = state["progress"]
        assert isinstance(progress, Progress)
        return progress


def _step_seed(seed: int, step: int, number: int, process: int) -> int:
    return int(np.random.SeedSequence((seed, step, number, process)).generate_state(1)[0])
