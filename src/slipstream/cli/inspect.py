"""``slipstream inspect``: what a model is, read from its files without running it."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import asdict
from math import prod
from typing import TYPE_CHECKING, Any

import click

from slipstream.drafters.checkpoint import describe as describe_drafter
from slipstream.drafters.checkpoint import is_drafter
from slipstream.drafters.learned import shipped_drafters
from slipstream.models import catalog
from slipstream.models.loader import open_checkpoint

if TYPE_CHECKING:
    from slipstream.models.checkpoint import Checkpoint


@click.command()
@click.argument("model")
@click.option("--json", "as_json", is_flag=True, help="One JSON object instead of the table.")
def inspect(model: str, as_json: bool) -> None:
    """Say what MODEL is: architecture, sizes, formats, tokenizer, context, licence.

    MODEL is a built-in name, a .gguf file, a Hugging Face directory or a hub id; or a drafter's
    directory, or the name of one that ships, such as smollm2-135m/eagle.
    """
    drafter = shipped_drafters().get(model, model)
    if is_drafter(drafter):
        about = describe_drafter(drafter)
        if as_json:
            click.echo(json.dumps(about, ensure_ascii=False))
        else:
            from slipstream.cli.inspect_drafter import print_drafter

            print_drafter(model, about)
        return
    facts = describe(open_checkpoint(model))
    if model in catalog.names():
        facts["licence"] = catalog.get(model).licence
    if as_json:
        click.echo(json.dumps(facts, ensure_ascii=False))
    else:
        _print_table(facts)


def describe(checkpoint: Checkpoint) -> dict[str, Any]:
    """Everything ``inspect`` tells, as JSON types; sizes in bytes."""
    tokenizer = checkpoint.tokenizer
    formats: Counter[str] = Counter()
    size: Counter[str] = Counter()
    parameters = 0
    for name in checkpoint.names():
        tensor = checkpoint.stored(name)
        formats[tensor.format] += 1
        size[tensor.format] += tensor.data.nbytes
        parameters += prod(tensor.shape)
    return {
        "name": checkpoint.name,
        **asdict(checkpoint.config),
        "parameters": parameters,
        "bytes": sum(size.values()),
        "formats": {name: {"tensors": formats[name], "bytes": size[name]} for name in formats},
        "tokenizer": {
            "tokens": tokenizer.vocab_size,
            "bos": None
            if tokenizer.bos_token_id is None
            else tokenizer.token(tokenizer.bos_token_id),
            "ends": [tokenizer.token(id) for id in sorted(tokenizer.eos_token_ids)],
            "chat_template": tokenizer.has_chat_template,
            "fingerprint": tokenizer.fingerprint,
        },
        "licence": getattr(checkpoint, "licence", None),
        "fingerprint": checkpoint.fingerprint,
    }


def _print_table(facts: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    tokenizer = facts["tokenizer"]
    scaling = facts["rope_scaling"]
    rope = f"theta {facts['rope_theta']:g}"
    if scaling:
        rope += f", {scaling['kind']} x {scaling['factor']:g}"
    rows = {
        "architecture": facts["architecture"],
        "parameters": f"{facts['parameters'] / 1e6:,.1f} M",
        "blocks": f"{facts['num_layers']} of width {facts['hidden_size']}, "
        f"inner {facts['intermediate_size']}",
        "attention": f"{facts['num_heads']} heads of {facts['head_dim']}, "
        f"{facts['num_kv_heads']} key heads",
        "rotary": rope,
        "context": f"{facts['max_context']:,} tokens",
        "weights": f"{facts['bytes'] / 1e6:,.1f} MB: "
        + ", ".join(
            f"{name} {entry['bytes'] / 1e6:,.1f} MB in {entry['tensors']}"
            for name, entry in facts["formats"].items()
        ),
        "LM head": "the embedding" if facts["tie_embeddings"] else "its own",
        "tokenizer": f"{tokenizer['tokens']:,} tokens (logits {facts['vocab_size']:,}), "
        f"fingerprint {tokenizer['fingerprint']}",
        "begins, ends": f"{tokenizer['bos'] or 'nothing'}, {' '.join(tokenizer['ends'])}",
        "chat template": "yes" if tokenizer["chat_template"] else "no",
        "licence": facts["licence"] or "not stated",
        "fingerprint": facts["fingerprint"],
    }
    table = Table(title=Text(facts["name"]), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(Text(key), Text(value))
    Console().print(table)
