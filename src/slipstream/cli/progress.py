"""A progress bar for what may take a while before the first token: fetching, reading, packing.

Drawn on stderr, and on a terminal only; elsewhere one line says what takes so long. Nothing is
drawn, and nothing imported, for loads that are over soon.
"""

from __future__ import annotations

import sys
from time import monotonic
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_PATIENCE = 0.3  # seconds of silence before a bar is worth drawing
_LONG_PATIENCE = 3.0  # and before a line in a log is
_MEGABYTE = 1_000_000


class LoadingBar:
    """A callable (what, done, total) for loaders, and a context in which its bars live."""

    def __init__(self) -> None:
        self._begun = monotonic()
        self._progress: Progress | None = None
        self._tasks: dict[str, TaskID] = {}
        self._mentioned: set[str] = set()

    def __enter__(self) -> LoadingBar:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._progress is not None:
            self._progress.stop()

    def __call__(self, what: str, done: int, total: int) -> None:
        waited = monotonic() - self._begun
        if not sys.stderr.isatty():
            if waited >= _LONG_PATIENCE and done < total and what not in self._mentioned:
                self._mentioned.add(what)
                size = f" ({total / _MEGABYTE:.0f} MB)" if total >= _MEGABYTE else ""
                print(f"slipstream: {what}{size} …", file=sys.stderr)
            return
        if self._progress is None:
            if waited < _PATIENCE:
                return
            self._progress = _start()
        if what not in self._tasks:
            self._tasks[what] = self._progress.add_task(what, total=total or None)
        self._progress.update(self._tasks[what], completed=done, total=total or None)


def _start() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    progress = Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    )
    progress.start()
    return progress
