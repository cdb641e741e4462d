"""``slipstream profile``: what a drafter would bring on your prompts, and whether that came true.

Measuring is :mod:`slipstream.profiling`'s; here are options, the table and the files. Promises:
stdout holds the findings, progress goes to stderr, and a prediction is not shown without the
measurement that checks it unless ``--no-check`` asks for that.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slipstream import __version__
from slipstream.config import EngineConfig, SpeculationConfig
from slipstream.errors import InvalidInput

if TYPE_CHECKING:
    from slipstream.engine.engine import Engine
    from slipstream.profiling.findings import Profile
    from slipstream.profiling.prompts import LabelledPrompt

_PLACE = EngineConfig()
ALL = "all"
MOST_PROMPTS = 24


def measuring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The options that ``profile`` and ``tune`` share."""
    file = click.Path(exists=True, dir_okay=False, path_type=Path)
    for option in reversed(
        [
            click.option("--model", default="smollm2-135m", show_default=True),
            click.option(
                "--drafters",
                default=ALL,
                show_default=True,
                help="Comma-separated, such as prompt-lookup,draft:PATH; all is whatever is here.",
            ),
            click.option(
                "--prompts",
                type=file,
                help="JSON lines with prompt, messages or turns, request logs, or plain text "
                "with blank lines between prompts. Default: a few that come along.",
            ),
            click.option(
                "--limit",
                type=click.IntRange(1),
                default=MOST_PROMPTS,
                show_default=True,
                help="Most prompts, taken from the domains in turn.",
            ),
            click.option(
                "--temperature",
                default="0",
                show_default=True,
                help="One or several, comma-separated.",
            ),
            click.option(
                "--max-tokens",
                type=click.IntRange(2),
                default=64,
                show_default=True,
                help="Written per prompt.",
            ),
            click.option("--verify", default=SpeculationConfig().verify, show_default=True),
            click.option("--tree-width", type=int, help="Most children of a node of a tree."),
            click.option(
                "--allow-other-target",
                is_flag=True,
                help="Measure a trained drafter with a model it wasn't trained for.",
            ),
            click.option("--weights", default=_PLACE.weights, show_default=True),
            click.option("--activations", default=_PLACE.activations, show_default=True),
            click.option("--backend", default=_PLACE.backend, show_default=True),
            click.option("--threads", type=int),
            click.option("--device"),
            click.option("--fresh", is_flag=True, help="Measure costs even if they were kept."),
            click.option(
                "--check/--no-check",
                default=True,
                help="Measure the chosen setting against plain decoding. Default: yes.",
            ),
        ]
    ):
        command = option(command)
    return command


@click.command()
@measuring_options
@click.option(
    "--check-k",
    metavar="K,…",
    help="Which k to check, such as 1,2,4,auto. Default: the best predicted one and auto.",
)
@click.option(
    "--trace",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Measure nothing; tell the acceptance in recorded traces, one JSON a line, of "
    "`slipstream generate --trace --json`.",
)
@click.option(
    "--output",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write report.html and profile.json into this directory.",
)
def profile(output: Path | None, trace: Path | None, check_k: str | None, **options: Any) -> None:
    """Measure acceptance and cost on your prompts, predict the speedup, and check it.

    Every drafter writes answers to the prompts; cycles of every size are timed; from both follows
    the speedup at every k, with intervals over prompts. Then the best setting is run against plain
    decoding.
    """
    if trace is not None:
        _refuse_beside_trace()
        traced(trace, output)
        return
    found, _ = measured(check_k=check_k, **options)
    for line in findings(found):
        click.echo(line)
    if output is not None:
        from slipstream.profiling.page import html

        _write(output, html(found), found.as_dict())


def traced(path: Path, output: Path | None) -> None:
    """Print, and write if asked to, what recorded traces say of acceptance."""
    from slipstream.profiling.report import in_short, positions
    from slipstream.profiling.traces import read_traces

    found = read_traces(path)
    for run in found:
        click.echo(f"{run.model}, {run.setting}: {in_short(run.overall)}")
        for line in _aligned(positions(run)):
            click.echo("  " + line)
        if len(run.domains) > 1:
            for domain, acceptance in run.domains.items():
                click.echo(f"  {domain}: {in_short(acceptance)}")
        for note in run.notes:
            click.echo(f"  note: {note}")
    if output is not None:
        from slipstream.profiling.page import traces_html

        _write(output, traces_html(found), {"traces": [run.as_dict() for run in found]})


def _refuse_beside_trace() -> None:
    """Options that would have no effect are refused, not dropped."""
    context = click.get_current_context()
    for option in context.command.params:
        if option.name in ("trace", "output") or option.name is None:
            continue
        if context.get_parameter_source(option.name) is click.core.ParameterSource.COMMANDLINE:
            raise InvalidInput(
                f"{option.opts[0]} doesn't go with --trace, which reads what was recorded "
                "and measures nothing"
            )


def _write(output: Path, page: str, figures: dict[str, Any]) -> None:
    output.mkdir(parents=True, exist_ok=True)
    (output / "report.html").write_text(page, encoding="utf-8")
    content = json.dumps({"slipstream": __version__, **figures}, indent=2, allow_nan=False)
    (output / "profile.json").write_text(content + "\n", encoding="utf-8")
    click.echo(f"\nwritten: {output / 'report.html'}, {output / 'profile.json'}")


def measured(
    *,
    model: str,
    drafters: str,
    prompts: Path | None,
    limit: int,
    temperature: str,
    max_tokens: int,
    verify: str,
    tree_width: int | None,
    allow_other_target: bool,
    fresh: bool,
    check: bool,
    check_k: str | None = None,
    **place: Any,
) -> tuple[Profile, Engine]:
    """Profile as the options say; also returns the engine that decoded plainly."""
    temperatures = _numbers(temperature)
    depths = None if check_k is None else [_depth(word) for word in check_k.split(",")]
    config = EngineConfig(**place)

    from slipstream.cli.progress import LoadingBar
    from slipstream.engine.engine import Engine
    from slipstream.profiling import profile as profiling
    from slipstream.profiling.prompts import default_prompts, read_prompts, spread_over_domains

    asked: Sequence[LabelledPrompt] = (
        default_prompts() if prompts is None else read_prompts(prompts)
    )
    asked = spread_over_domains(asked, limit)
    with LoadingBar() as progress:
        engine: Engine = Engine(
            model,
            drafter="none",
            k=0,
            tree_width=tree_width,
            verify=verify,
            allow_other_target=allow_other_target,
            config=config,
            progress=progress,
        )
        every = drafters == ALL
        found = profiling.profile(
            engine,
            available(engine) if every else drafters.split(","),
            asked,
            model=model,
            temperatures=temperatures,
            max_tokens=max_tokens,
            tolerate=every,
            fresh=fresh,
            notice=progress,
        )
        if check:
            profiling.check(
                engine, found, asked, depths=depths, max_tokens=max_tokens, notice=progress
            )
    return found, engine


def available(engine: Engine) -> list[str]:
    """Drafters that may work without being told more, and what ``auto`` stands for."""
    from slipstream.drafters.default import default_spec
    from slipstream.drafters.registry import DRAFTERS, DrafterContext

    context = DrafterContext(target=engine.model, tokenizer=engine.tokenizer, config=engine.config)
    names = [n for n, entry in DRAFTERS.items() if n != "none" and entry.argument != "required"]
    return list(dict.fromkeys([*names, default_spec(context)]))


def findings(found: Profile) -> list[str]:
    """The table, the advice and the check, as lines."""
    from slipstream.profiling.report import advice, describe_check, table

    lines = [*_aligned(table(found)), ""]
    lines += [advice(entry) for entry in found.drafters]
    lines += [f"left out: {name}: {why}" for name, why in found.left_out.items()]
    if found.checks:
        first = found.checks[0]
        lines += ["", f"checked, {first.drafter} at T = {first.temperature:g}:"]
        lines += ["  " + describe_check(check) for check in found.checks]
    return lines


def _aligned(rows: list[list[str]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _numbers(words: str) -> list[float]:
    try:
        return [float(word) for word in words.split(",")]
    except ValueError:
        raise InvalidInput(f"--temperature takes numbers such as 0,0.8, not {words!r}") from None


def _depth(word: str) -> Any:
    from slipstream.profiling.profile import DEEPEST

    if word == "auto" or (word.isdigit() and 1 <= int(word) <= DEEPEST):
        return word if word == "auto" else int(word)
    raise InvalidInput(f"--check-k takes auto and whole numbers in [1, {DEEPEST}], not {word!r}")
