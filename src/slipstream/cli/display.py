"""Text on a terminal as it is written, each token marked by where it came from.

Colour and shape both carry the mark, so that it survives colour blindness: drafted-and-accepted
tokens are green, residual tokens yellow and underlined, bonus tokens plain. Knows pieces and
reports, no engine. Promises that into a pipe goes the text alone, with one line break at its end.
"""

from __future__ import annotations

import os
import sys
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import click

if TYPE_CHECKING:
    from rich.console import Console

    from slipstream.cli.report import Report
    from slipstream.engine.generation import Generation
    from slipstream.engine.request import Piece
    from slipstream.engine.stream import Stream
    from slipstream.engine.trace import Trace
    from slipstream.types import Origin

STYLES: Final[dict[Origin, dict[str, Any]]] = {
    "draft": {"fg": "green"},
    "residual": {"fg": "yellow", "underline": True},
    "bonus": {},
}

_AROUND: Final[dict[Origin, list[str]]] = {
    origin: click.style("|", **style).split("|") if style else ["", ""]
    for origin, style in STYLES.items()
}
"""What a mark writes before and behind a text."""


class Display:
    """Where a generation is shown.

    Args:
        color: ``auto`` marks tokens on a terminal (unless NO_COLOR is set), ``always``, ``never``.
        speculating: whether there is anything to tell apart.
    """

    def __init__(self, color: str, *, speculating: bool = True) -> None:
        self.on_terminal = sys.stdout.isatty()
        wanted = self.on_terminal and "NO_COLOR" not in os.environ
        self.color = color == "always" or (color == "auto" and wanted)
        self._speculating = speculating
        encoding = (sys.stdout.encoding or "").lower()
        self._is_plain_stream = os.name != "nt" and encoding.startswith("utf")

    def write(self, stream: Stream) -> Generation:
        """Show a generation piece by piece to its end; returns it.

        An error or an interrupt ends the line before it goes on its way.
        """
        last = "\n"
        try:
            with closing(stream):
                for piece in stream:
                    self._show(piece)
                    last = piece.text[-1:] or last
        except BaseException as error:
            if last != "\n" and not isinstance(error, BrokenPipeError):
                click.echo()
            raise
        if last != "\n" or not stream.result.text:
            click.echo()
        return stream.result

    def _show(self, piece: Piece) -> None:
        """Write a piece; one of several tokens takes the mark of the token that completed it."""
        text = harmless(piece.text) if self.on_terminal else piece.text
        if text and self.color and self._speculating and piece.origins:
            before, behind = _AROUND[piece.origins[-1]]
            text = before + text + behind
        # click looks at the stream anew for every piece, which costs more than all else that is
        # done with it; only odd encodings, old consoles and control characters in a pipe need that.
        if self._is_plain_stream and (self.color or "\x1b" not in text):
            sys.stdout.write(text)
        else:
            click.echo(text, nl=False, color=self.color or None)
        sys.stdout.flush()

    def cycles(self, trace: Trace) -> None:
        """Picture every cycle's drafted tree, below the text; on stderr if stdout is a pipe."""
        from slipstream.cli.trace import render_cycle

        console = self._console()
        for cycle in trace.cycles:
            console.print(render_cycle(cycle))

    def panel(self, report: Report) -> None:
        """Say what it gained, below the text; on stderr if stdout is a pipe."""
        from rich.panel import Panel
        from rich.text import Text

        body = Text("\n").join(Text.assemble(*line) for line in report.lines())
        self._console().print(
            Panel(
                body,
                title=Text(report.title),
                title_align="left",
                border_style="dim" if report.result.exact else "red",
                expand=False,
            )
        )

    def _console(self) -> Console:
        from rich.console import Console

        return Console(
            stderr=not self.on_terminal, no_color=not self.color, highlight=False, width=_width()
        )


def harmless(text: str) -> str:
    """Text whose control characters can't steer a terminal; line breaks and tabs stay."""
    if text.isprintable():
        return text
    return "".join(c if c in "\n\t" or c.isprintable() else _shown(c) for c in text)


def _shown(character: str) -> str:
    """Separators and joiners stay as they are; control characters become their pictures."""
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "\ufffd" if 0x7F <= code < 0xA0 else character


def _width() -> int | None:
    """Columns for a panel whose output is no terminal; None lets rich measure one."""
    return None if sys.stdout.isatty() or sys.stderr.isatty() else 100
