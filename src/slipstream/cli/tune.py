"""``slipstream tune``: profile, and write the settings that came out best, for others as well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from slipstream.cli.profile import findings, measured, measuring_options


@click.command()
@measuring_options
@click.option(
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("slipstream.json"),
    show_default=True,
    help="The settings file.",
)
def tune(output: Path, **options: Any) -> None:
    """Find the fastest settings for your prompts and write them to a file.

    The file is for `slipstream generate --settings FILE`. It also holds equivalent settings for
    vLLM, SGLang and llama.cpp, and the figures that led to all of them.
    """
    from slipstream.profiling.tune import other_engines, reasons, settings_for

    found, plain = measured(**options)
    content = {
        **settings_for(found, plain.speculation, plain.config).as_dict(),
        "because": reasons(found),
        "other_engines": other_engines(found),
    }
    output.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps(content, indent=2, allow_nan=False)
    output.write_text(text + "\n", encoding="utf-8")
    for line in findings(found):
        click.echo(line)
    click.echo(f"\nwritten: {output}; use it: slipstream generate --settings {output}")
