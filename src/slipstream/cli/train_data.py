"""``slipstream train data``: text from the target itself, in shards that training reads.

Turns options into settings; the work is :mod:`slipstream.training.selfdata`'s.
"""

from __future__ import annotations

from pathlib import Path

import click

from slipstream.cli.train_bar import RunBar
from slipstream.config import EngineConfig
from slipstream.errors import InvalidInput


@click.command()
@click.option("--model", default="smollm2-135m", show_default=True, help="The target.")
@click.option("--tokens", type=click.IntRange(1), required=True, help="How much text in all.")
@click.option(
    "--output", type=click.Path(file_okay=False, path_type=Path), required=True, help="Directory."
)
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
    with RunBar("tokens", tokens) as bar:
        made = make_data(
            engine,
            output,
            settings,
            tokens,
            texts=texts,
            progress=lambda shards, count: bar.show(count, f"{shards} shards"),
        )
    click.echo(f"{made:,} tokens in {output}", err=True)
