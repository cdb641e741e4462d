"""The ``slipstream`` command: finds a command by name, and turns errors into one line.

Knows the commands' names and where they live, nothing of what they do: their modules are imported
when they run, so that ``slipstream --help`` answers at once. Promises: a deliberate error is one
line on stderr and exit status 2, without a traceback; an interrupt is status 130; a reader that
closes the pipe is no error worth a word.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from types import MappingProxyType
from typing import Final, NamedTuple

import click

import slipstream
from slipstream.errors import SlipstreamError, UnknownName


class Entry(NamedTuple):
    """Where a command lives (``module:attribute``) and what it does, in a line."""

    target: str
    summary: str


COMMANDS: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "generate": Entry("slipstream.cli.generate:generate", "Write text from a prompt."),
        "pull": Entry("slipstream.cli.pull:pull", "Fetch a built-in model into the cache."),
        "inspect": Entry("slipstream.cli.inspect:inspect", "Say what a model file is."),
        "train": Entry("slipstream.cli.train:train", "Train a drafter for a model of yours."),
        "theory": Entry("slipstream.cli.theory:theory", "Predict the gain from alpha and cost."),
        "profile": Entry("slipstream.cli.profile:profile", "Measure, predict and check the gain."),
        "tune": Entry("slipstream.cli.tune:tune", "Write the fastest settings to a file."),
    }
)

INTERRUPTED: Final = 130  # 128 + SIGINT
PIPE_CLOSED: Final = 1  # what click returns when it is the one to notice


class LazyGroup(click.Group):
    """A group that imports a command's module only to run it or to show its own help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, attribute = COMMANDS[cmd_name].target.split(":")
        command = getattr(import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            raise UnknownName("command", args[0], COMMANDS)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in COMMANDS.items()])


@click.group(
    cls=LazyGroup,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog="slipstream COMMAND --help explains a command.",
)
@click.version_option(slipstream.__version__, prog_name="slipstream")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Exact speculative decoding for language models: same text, less time, and a proof."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def main(args: Sequence[str] | None = None) -> int:
    """Run a command line; returns the exit status.

    Args:
        args: words after the program's name; None takes the process's own.
    """
    _open_missing_streams()
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a terminal that can't show a character gets a "?"
            stream.reconfigure(errors="replace")
    try:
        status = cli.main(args, prog_name="slipstream", standalone_mode=False)
        sys.stdout.flush()
    except (click.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except BrokenPipeError:
        # Python flushes stdout once more on its way out; give it somewhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return PIPE_CLOSED
    except click.UsageError as error:
        where = f" (see {error.ctx.command_path} --help)" if error.ctx else ""
        return _complain(error.format_message() + where)
    except click.ClickException as error:
        return _complain(error.format_message())
    except SlipstreamError as error:
        return _complain(str(error))
    except OSError as error:
        parts = [str(part) for part in (error.filename, error.strerror) if part]
        return _complain(": ".join(parts) or str(error) or type(error).__name__)
    return status if isinstance(status, int) else 0


def _open_missing_streams() -> None:
    """A process may be started without stdout or stderr; what is written there is lost, no more."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115


def _complain(message: str) -> int:
    print("slipstream: error: " + " ".join(message.split()), file=sys.stderr)
    return 2
