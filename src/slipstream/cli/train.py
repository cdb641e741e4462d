"""``slipstream train``: data from the target itself, drafters trained on it, and their curves.

Turns options into settings and draws progress; the work is :mod:`slipstream.training`'s. Everything
can be killed at any time: the same command goes on where it was.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slipstream.cli.train_data import data
from slipstream.cli.train_run import run as run_training
from slipstream.errors import InvalidInput

if TYPE_CHECKING:
    from slipstream.drafters.checkpoint_config import Architecture

LOSSES = ("ce", "kl", "reverse-kl", "jsd", "tv", "log-alpha", "hybrid")


@click.group()
def train() -> None:
    """Make drafters that fit a model: data, training, curves."""


train.add_command(data)


def _trainer(architecture: Architecture, **defaults: Any) -> Callable[[Any], click.Command]:
    """A command with the options that all architectures share, in front of its own."""

    def build(function: Any) -> click.Command:
        options = [
            click.option("--model", default="smollm2-135m", show_default=True, help="The target."),
            click.option(
                "--data",
                type=click.Path(path_type=Path),
                multiple=True,
                required=True,
                help="From train data; repeatable.",
            ),
            click.option(
                "--output",
                type=click.Path(file_okay=False, path_type=Path),
                required=True,
                help="The drafter.",
            ),
            click.option(
                "--tokens",
                type=click.IntRange(1),
                required=True,
                help="To see, repetitions included.",
            ),
            click.option(
                "--vocabulary", type=int, default=16384, show_default=True, help="Drafter's tokens."
            ),
            click.option("--loss", type=click.Choice(LOSSES), help="Default: hybrid."),
            click.option("--greedy-share", type=float, help="Of p moved to its best token."),
            click.option("--depth-decay", type=float, help="Weight of each further depth."),
            click.option("--positions", type=int, help="Per row in the token loss; 0 is all."),
            click.option("--others", type=int, help="Random tokens in the loss; 0 is all."),
            click.option(
                "--start", type=click.Path(path_type=Path), help="A drafter to go on from."
            ),
            click.option(
                "--learning-rate", type=float, default=defaults["rate"], show_default=True
            ),
            click.option("--length", type=int, default=256, show_default=True, help="Of a row."),
            click.option("--rows", type=int, default=8, show_default=True, help="In a batch."),
            click.option("--accumulate", type=int, default=1, show_default=True, help="Batches."),
            click.option("--clip", type=float, default=1.0, show_default=True),
            click.option("--weight-decay", type=float, default=0.0, show_default=True),
            click.option(
                "--precision",
                type=click.Choice(["auto", "f32", "bf16"]),
                default="auto",
                show_default=True,
            ),
            click.option(
                "--store",
                type=click.Choice(["q8_0", "bf16", "f16", "f32"]),
                default="q8_0",
                show_default=True,
                help="Of the drafter's matrices.",
            ),
            click.option("--evaluate-every", type=int, default=500_000, show_default=True),
            click.option("--held-out-tokens", type=int, default=15_000, show_default=True),
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


@_trainer("draft", rate=1e-3)
@click.option("--layers", metavar="I,…", help="Target blocks to start from. Default: 0,1,2,last.")
def draft(layers: str | None, **options: Any) -> None:
    """Distil a small decoder that starts from the target's own blocks."""
    try:
        chosen = tuple(int(part) for part in layers.split(",")) if layers else ()
    except ValueError:
        raise InvalidInput(
            f"--layers takes block numbers such as 0,1,2,29, not {layers!r}"
        ) from None
    run_training("draft", {}, options, layers=chosen)


@_trainer("medusa", rate=2e-3)
@click.option("--heads", type=int, default=4, show_default=True, help="Tokens ahead.")
def medusa(heads: int, **options: Any) -> None:
    """Train heads that guess several tokens ahead from one feature."""
    run_training("medusa", {"depths": heads}, options, heads=heads)


@_trainer("eagle", rate=1e-3)
@click.option("--blocks", type=int, default=1, show_default=True, help="Of the transformer.")
@click.option("--depths", type=int, help="Of the rollout.")
@click.option("--shallow", type=float, help="Share of the run that trains depth 1 alone, first.")
@click.option("--noise", type=float, help="On features, relative to their own spread.")
@click.option("--feature-weight", type=float, help="Of the feature loss.")
def eagle(
    blocks: int,
    depths: int | None,
    shallow: float | None,
    noise: float | None,
    feature_weight: float | None,
    **options: Any,
) -> None:
    """Train the feature drafter, on its own errors too."""
    own = {"depths": depths, "shallow": shallow, "noise": noise, "feature_weight": feature_weight}
    run_training("eagle", own, options, blocks=blocks)


@train.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--output", type=click.Path(path_type=Path), help="Default: RUN/curve.svg.")
def plot(run: Path, output: Path | None) -> None:
    """Draw a run's held-out acceptance against training tokens."""
    from slipstream.training.run_record import plot as draw

    output = output or run / "curve.svg"
    draw(run, output)
    click.echo(str(output))
