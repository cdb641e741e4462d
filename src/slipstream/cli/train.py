"""``slipstream train``: data from the target itself, drafters trained on it, and their curves.

Turns options into settings and draws progress; the work is :mod:`slipstream.training`'s. Everything
can be killed at any time: the same command goes on where it was.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slipstream.config import EngineConfig
from slipstream.errors import InvalidInput, MissingExtra

if TYPE_CHECKING:
    from slipstream.drafters.checkpoint_config import Architecture
    from slipstream.training.trainer import Report

LOSSES = ("ce", "kl", "reverse-kl", "jsd", "tv", "log-alpha", "hybrid")


@click.group()
def train() -> None:
    """Make drafters that fit a model: data, training, curves."""


@train.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The target.")
@click.option("--tokens", type=click.IntRange(1), required=True, help="How much text in all.")
@click.option("--output", type=click.Path(path_type=Path), required=True, help="Directory.")
@click.option("--prompts", type=click.Path(path_type=Path), help="User turns, one a line or JSONL.")
@click.option("--chats", type=click.Path(path_type=Path), help="Whole conversations as JSONL.")
@click.option("--temperature", type=float, multiple=True, help="Of answers; repeatable.")
@click.option("--answer-tokens", type=int, default=320, show_default=True, help="Most per answer.")
@click.option("--shard", type=int, default=128, show_default=True, help="Conversations per shard.")
@click.option("--held-out", type=float, default=0.02, show_default=True, help="Share never used.")
@click.option("--no-features", is_flag=True, help="Don't keep features; training recomputes them.")
@click.option("--seed", type=int, default=0, show_default=True)
@click.option("--batch", type=int, default=32, show_default=True, help="Conversations at a time.")
@click.option("--backend", default="auto", show_default=True, help="auto, native, reference or hf.")
@click.option("--weights", default="auto", show_default=True, help="auto, bf16, int8, q4 or f32.")
@click.option("--activations", default="bf16", show_default=True, help="bf16 or int8.")
@click.option("--threads", type=int, help="Default: one per physical core.")
@click.option("--device", help="Torch device of the hf backend.")
def data(
    model: str,
    tokens: int,
    output: Path,
    prompts: Path | None,
    chats: Path | None,
    temperature: tuple[float, ...],
    answer_tokens: int,
    shard: int,
    held_out: float,
    no_features: bool,
    seed: int,
    batch: int,
    backend: str,
    weights: str,
    activations: str,
    threads: int | None,
    device: str | None,
) -> None:
    """Let the model write questions and answer them."""
    from slipstream.engine.engine import Engine
    from slipstream.models.loader import load_model
    from slipstream.training.manifest import DataSettings
    from slipstream.training.openings import OPENINGS
    from slipstream.training.recording import RecordingTarget
    from slipstream.training.selfdata import check_disk, make_data, read_texts

    if prompts and chats:
        raise InvalidInput("give --prompts or --chats, not both")
    source = "prompts" if prompts else "chats" if chats else "self"
    file = prompts or chats
    texts, digest = read_texts(file, source) if file else ([], "")
    settings = DataSettings(
        source=source,
        source_digest=digest,
        seed=seed,
        conversations=shard,
        temperatures=temperature or DataSettings.temperatures,
        answer_tokens=answer_tokens,
        held_out=held_out,
        features=not no_features,
        openings=OPENINGS if source == "self" else ("",),
    )
    config = EngineConfig(
        backend=backend,
        weights=weights,
        activations=activations,
        threads=threads,
        device=device,
        max_batch=batch,
    )
    loaded = load_model(model, config)
    needed = check_disk(output, settings, loaded.target.info.hidden_size, tokens)
    click.echo(f"{tokens:,} tokens will take about {needed / 1e9:.2f} GB in {output}", err=True)
    target = RecordingTarget(loaded.target, top=settings.top, keep_features=settings.features)
    engine = Engine(target, tokenizer=loaded.tokenizer, drafter="none", k=0, config=config)
    with _Bar("tokens", tokens) as bar:
        made = make_data(
            engine,
            output,
            settings,
            tokens,
            texts=texts,
            progress=lambda shards, count: bar.show(count, f"{shards} shards"),
        )
    click.echo(f"{made:,} tokens in {output}", err=True)


def _trainer(architecture: Architecture, **defaults: Any) -> Callable[[Any], click.Command]:
    """A command with the options that all architectures share, in front of its own."""

    def build(function: Any) -> click.Command:
        options = [
            click.option("--model", default="smollm2-135m", show_default=True, help="The target."),
            click.option(
                "--data", type=click.Path(path_type=Path), required=True, help="From train data."
            ),
            click.option(
                "--output", type=click.Path(path_type=Path), required=True, help="The drafter."
            ),
            click.option("--tokens", type=int, required=True, help="To see, repetitions included."),
            click.option(
                "--vocabulary", type=int, default=16384, show_default=True, help="Drafter's tokens."
            ),
            click.option("--loss", type=click.Choice(LOSSES), help="Default: hybrid."),
            click.option("--greedy-share", type=float, help="Of p moved to its best token."),
            click.option("--depth-decay", type=float, help="Weight of each further depth."),
            click.option("--positions", type=int, help="Per row and depth in the loss; 0 is all."),
            click.option("--others", type=int, help="Random tokens in the loss; 0 is all."),
            click.option(
                "--learning-rate", type=float, default=defaults["rate"], show_default=True
            ),
            click.option("--length", type=int, default=512, show_default=True, help="Of a row."),
            click.option("--rows", type=int, default=4, show_default=True, help="In a batch."),
            click.option("--accumulate", type=int, default=1, show_default=True, help="Batches."),
            click.option("--clip", type=float, default=1.0, show_default=True),
            click.option("--weight-decay", type=float, default=0.0, show_default=True),
            click.option(
                "--precision",
                type=click.Choice(["auto", "f32", "bf16"]),
                default="auto",
                show_default=True,
            ),
            click.option("--evaluate-every", type=int, default=250_000, show_default=True),
            click.option("--held-out-tokens", type=int, default=20_000, show_default=True),
            click.option("--save-minutes", type=float, default=5.0, show_default=True),
            click.option("--save-steps", type=int, default=0, show_default=True),
            click.option("--patience", type=int, default=0, show_default=True, help="0 is never."),
            click.option("--seed", type=int, default=0, show_default=True),
            click.option("--threads", type=int, help="Of torch."),
            click.option("--license", default="Apache-2.0", show_default=True, help="Of weights."),
        ]
        for option in reversed(options):
            function = option(function)
        return train.command(architecture)(function)

    return build


@_trainer("draft", rate=5e-4)
@click.option("--layers", metavar="I,…", help="Target blocks to start from. Default: 0,1,2,last.")
def draft(layers: str | None, **options: Any) -> None:
    """Distil a small decoder that starts from the target's own blocks."""
    try:
        chosen = tuple(int(part) for part in layers.split(",")) if layers else ()
    except ValueError:
        raise InvalidInput(
            f"--layers takes block numbers such as 0,1,2,29, not {layers!r}"
        ) from None
    _run("draft", {}, options, layers=chosen)


@_trainer("medusa", rate=1e-3)
@click.option("--heads", type=int, default=4, show_default=True, help="Tokens ahead.")
def medusa(heads: int, **options: Any) -> None:
    """Train heads that guess several tokens ahead from one feature."""
    _run("medusa", {"depths": heads}, options, heads=heads)


@_trainer("eagle", rate=1e-3)
@click.option("--depths", type=int, default=2, show_default=True, help="Of the rollout.")
@click.option("--noise", type=float, help="On features, relative to their own spread.")
@click.option("--feature-weight", type=float, help="Of the feature loss.")
def eagle(depths: int, noise: float | None, feature_weight: float | None, **options: Any) -> None:
    """Train the feature drafter, on its own errors too."""
    own = {"depths": depths, "noise": noise, "feature_weight": feature_weight}
    _run("eagle", own, options)


@train.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Default: RUN/curve.svg.")
def plot(run: Path, output: Path | None) -> None:
    """Draw a run's held-out acceptance against training tokens."""
    from slipstream.training.run_record import plot as draw

    output = output or run / "curve.svg"
    draw(run, output)
    click.echo(str(output))


def _run(
    architecture: Architecture, own: dict[str, Any], options: dict[str, Any], **shape: Any
) -> None:
    try:
        import accelerate  # noqa: F401
        import torch
    except ModuleNotFoundError:
        raise MissingExtra("training needs torch: pip install 'slipstream[train]'") from None
    from slipstream.models.loader import open_checkpoint
    from slipstream.training.corpus import Corpus
    from slipstream.training.drafter_vocabulary import choose, count_tokens, coverage
    from slipstream.training.manifest import open_data
    from slipstream.training.recipes import default_objective, describe, make_network
    from slipstream.training.target import FrozenTarget
    from slipstream.training.trainer import Trainer, TrainerSettings

    if options["threads"]:
        torch.set_num_threads(options["threads"])
    checkpoint = open_checkpoint(options["model"])
    target = FrozenTarget.from_checkpoint(checkpoint)
    found = open_data(options["data"], target.identity)
    corpus = Corpus(
        found,
        length=options["length"],
        rows=options["rows"],
        seed=options["seed"],
        recompute=None if found.settings.features else _features(options["model"]),
    )
    size = target.identity.vocab_size
    counts = count_tokens(corpus.shards, size, held_out=False)
    ends = sorted(checkpoint.tokenizer.eos_token_ids)
    vocabulary = choose(counts, min(options["vocabulary"], size), ends)
    unseen = count_tokens(corpus.shards, size, held_out=True)
    _say(
        f"{corpus.tokens:,} tokens of text to train on; the drafter's vocabulary covers "
        f"{coverage(unseen, vocabulary):.1%} of held-out text"
    )
    names = ("loss", "greedy_share", "depth_decay", "positions", "others")
    given = {**own, **{name: options[name] for name in names}}
    objective = dataclasses.replace(
        default_objective(architecture), **{k: v for k, v in given.items() if v is not None}
    )
    fields = {field.name for field in dataclasses.fields(TrainerSettings)}
    settings = TrainerSettings(**{name: options[name] for name in fields & set(options)})
    network = make_network(architecture, target, corpus, seed=options["seed"], **shape)
    with _Bar(f"train {architecture}", settings.tokens) as bar:
        done = Trainer(
            network=network,
            target=target,
            corpus=corpus,
            objective=objective,
            settings=settings,
            output=options["output"],
            config=describe(network, target, options["license"]),
            vocabulary=vocabulary,
            arguments={"architecture": architecture, **options, **own, **shape},
            report=lambda report: bar.show(report.progress.tokens, _describe(report)),
        ).run()
    _say(f"{done.tokens:,} tokens in {done.step:,} steps; {options['output']}")


def _leads() -> bool:
    """Whether this process speaks; of several under torchrun one does."""
    return os.environ.get("RANK", "0") == "0"


def _say(text: str) -> None:
    if _leads():
        click.echo(text, err=True)


def _describe(report: Report) -> str:
    text = f"loss {report.loss:.3f}, {report.tokens_per_second:.0f} tok/s"
    if report.held_out is not None:
        greedy = ", ".join(f"{share:.3f}" for share in report.held_out.greedy)
        text += f"; held-out best-token acceptance {greedy}"
        text += f", alpha {report.held_out.alpha[0]:.3f}"
        if report.held_out.acceptance_length is not None:
            text += f", acceptance length {report.held_out.acceptance_length:.2f}"
    return text


def _features(model: str) -> Callable[[Any], Any]:
    """The target's own features of a text, by running it."""
    import numpy as np

    from slipstream.models.base import FeatureRequest
    from slipstream.models.loader import load_model

    target = load_model(model, EngineConfig()).target

    def recompute(tokens: Any) -> Any:
        handle = target.open()
        try:
            return np.asarray(
                target.prefill(handle, tokens, FeatureRequest(last=True)).features, np.float32
            )
        finally:
            target.close(handle)

    return recompute


class _Bar(AbstractContextManager["_Bar"]):
    """A bar on a terminal; elsewhere a line now and then, for logs of long runs."""

    def __init__(self, what: str, total: int) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self._console = Console(stderr=True)
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
            console=self._console,
            disable=not (self._console.is_terminal and _leads()),
        )
        self._task = self._progress.add_task(what, total=total, note="")
        self._spoken = 0.0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, done: int, note: str) -> None:
        """Say how far it is; notes with measurements are always kept."""
        import time

        self._progress.update(self._task, completed=done, note=note.partition(";")[0])
        now = time.monotonic()
        measured = ";" in note
        if not _leads():
            return
        if measured or (not self._console.is_terminal and now - self._spoken >= 30):
            self._spoken = now
            self._console.print(f"{done:,}: {note}", highlight=False, soft_wrap=True)
