"""What a long run says: a bar on a terminal, a line now and then elsewhere, and one voice only.

Of several processes under torchrun the first one speaks.
"""

from __future__ import annotations

import os
import time
from contextlib import AbstractContextManager

import click

_SILENCE = 30.0
"""Seconds between lines of a log."""


def leads() -> bool:
    """Whether this process speaks; of several under torchrun one does."""
    return os.environ.get("RANK", "0") == "0"


def say(text: str) -> None:
    if leads():
        click.echo(text, err=True)


class RunBar(AbstractContextManager["RunBar"]):
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
            disable=not (self._console.is_terminal and leads()),
        )
        self._task = self._progress.add_task(what, total=total, note="")
        self._spoken = 0.0

    def __enter__(self) -> RunBar:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(self, done: int, note: str) -> None:
        """Say how far it is; notes with measurements are always kept."""
        self._progress.update(self._task, completed=done, note=note.partition(";")[0])
        now = time.monotonic()
        measured = ";" in note
        if not leads():
            return
        if measured or (not self._console.is_terminal and now - self._spoken >= _SILENCE):
            self._spoken = now
            self._console.print(f"{done:,}: {note}", highlight=False, soft_wrap=True)
