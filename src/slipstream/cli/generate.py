"""``slipstream generate``: one prompt in, text out as it is written, and what it gained.

Turns options into the settings classes, which check them; decoding is the engine's, drawing is
:mod:`slipstream.cli.display`'s. Promises for pipes: stdout holds the text and nothing else, or with
``--json`` one object.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from slipstream.cli.prompt import as_prompt, read_prompt
from slipstream.cli.sampling_options import option, sampling_options, sampling_params
from slipstream.config import (
    MAX_DEPTH,
    Depth,
    EngineConfig,
    SamplingParams,
    SpeculationConfig,
)
from slipstream.errors import InvalidInput

if TYPE_CHECKING:
    from slipstream.engine.cost_table import CostTable
    from slipstream.engine.engine import Engine
    from slipstream.engine.generation import Generation
    from slipstream.engine.prompts import Prompt

# The registries would import numpy for the sake of a help text; a test compares.
DRAFTERS = "auto, prompt-lookup, draft:MODEL, medusa, eagle, eagle2, composite:A+B or none"
RULES = "coupled, rejection, block, recursive, greedy_siblings; LOSSY: argmax_match, typical"

_SPECULATION = SpeculationConfig()
_PLACE = EngineConfig()


@click.command()
@click.argument("prompt", required=False)
@click.option(
    "--chat/--raw",
    default=None,
    help="Format the prompt with the model's chat template, or don't. Default: if it has one.",
)
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@option("--model", "smollm2-135m", "Built-in name, .gguf file, directory or hub id.")
@option("--drafter", _SPECULATION.drafter, f"What guesses: {DRAFTERS}.")
@option(
    "--k",
    _SPECULATION.k,
    f"Drafted tokens per cycle, 0 to {MAX_DEPTH}, or auto: whatever is fastest at the moment.",
    callback=lambda _, __, value: _depth(value),
)
@click.option("--nodes", type=int, help="Most drafted tokens per cycle, as a tree if more than k.")
@click.option("--tree-width", type=int, help="Most children of a node of a tree.")
@click.option(
    "--allow-other-target",
    is_flag=True,
    help="Use a trained drafter with a model it wasn't trained for: exact, maybe slow.",
)
@option("--verify", _SPECULATION.verify, f"Verification rule: {RULES}.")
@sampling_options
@option("--weights", _PLACE.weights, "auto, bf16, int8, q4 or f32.")
@option("--activations", _PLACE.activations, "bf16 or int8.")
@option("--backend", _PLACE.backend, "auto, native, reference or hf.")
@click.option("--threads", type=int, help="Default: one per physical core.")
@click.option("--device", help="Torch device of the hf backend, such as cuda:0.")
@click.option(
    "--settings",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="What `slipstream tune` wrote; options given here go before.",
)
@click.option("--trace", is_flag=True, help="Show what was drafted in every cycle, as a tree.")
@click.option("--compare", is_flag=True, help="Also decode plainly; show both times.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.option(
    "--color",
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    show_default=True,
    help="Tell drafted, residual and bonus tokens apart.",
)
def generate(
    prompt: str | None,
    chat: bool | None,
    system: str | None,
    model: str,
    drafter: str,
    k: Depth,
    nodes: int | None,
    tree_width: int | None,
    allow_other_target: bool,
    verify: str,
    weights: str,
    activations: str,
    backend: str,
    threads: int | None,
    device: str | None,
    settings: Path | None,
    trace: bool,
    compare: bool,
    as_json: bool,
    color: str,
    **sampling: Any,
) -> None:
    """Write text from PROMPT, speculatively; from stdin if PROMPT is - or left out.

    On a terminal, tokens that were drafted and accepted, residual tokens (drawn after a rejection)
    and bonus tokens (drawn after a full acceptance) are told apart, and a panel says what it
    gained. Into a pipe goes the text alone.
    """
    params = sampling_params(as_json=as_json, **sampling)
    speculation = SpeculationConfig(
        drafter=drafter,
        k=k,
        nodes=nodes,
        tree_width=tree_width,
        verify=verify,
        allow_other_target=allow_other_target,
    )
    place = EngineConfig(
        weights=weights, activations=activations, backend=backend, threads=threads, device=device
    )
    costs: CostTable | None = None
    if settings is not None:
        model, speculation, place, costs = _merge(settings, model, speculation, place)
    text = read_prompt(prompt)

    from slipstream.cli.display import Display
    from slipstream.cli.progress import LoadingBar
    from slipstream.cli.report import Report
    from slipstream.engine.engine import Engine
    from slipstream.engine.trace import Trace

    with LoadingBar() as progress:
        engine = Engine(
            model,
            drafter=speculation.drafter,
            k=speculation.k,
            nodes=speculation.nodes,
            tree_width=speculation.tree_width,
            costs=costs,
            verify=speculation.verify,
            allow_other_target=speculation.allow_other_target,
            config=place,
            progress=progress,
        )
    if not engine.rule.exact:
        click.echo(
            f"slipstream: warning: --verify {speculation.verify} is LOSSY: "
            "the text does not follow the model's own distribution",
            err=True,
        )
    conversation = as_prompt(engine, text, system=system, chat=chat)

    display = Display(color, speculating=speculation.k != 0 and speculation.drafter != "none")
    if compare:  # what only the first passes of a process cost belongs to neither run
        engine.generate(engine.encode(conversation)[:1], SamplingParams(max_tokens=4))
    cycles = Trace(engine.tokenizer) if trace else None
    stream = engine.stream(conversation, params, trace=cycles)
    if as_json:
        for _ in stream:
            pass
    else:
        display.write(stream)
    result = stream.result
    plain = _decode_plainly(engine, conversation, params, result) if compare else None
    report = Report(model=model, k=speculation.k, result=result, plain=plain)
    if as_json:
        values = report.as_dict() | {"temperature": params.temperature}
        if cycles is not None:
            values["trace"] = cycles.as_dict()["cycles"]
        click.echo(json.dumps(values, ensure_ascii=False))
        return
    if cycles is not None:
        display.cycles(cycles)
    if display.on_terminal or compare:
        display.panel(report)


def _depth(value: str | int) -> Depth:
    """``auto`` or a number; :class:`SpeculationConfig` says what is wrong with anything else."""
    try:
        return "auto" if value == "auto" else int(value)
    except ValueError:
        raise InvalidInput(
            f"--k must be auto or a whole number in [0, {MAX_DEPTH}], not {value!r}"
        ) from None


def _merge(
    path: Path, model: str, speculation: SpeculationConfig, place: EngineConfig
) -> tuple[str, SpeculationConfig, EngineConfig, CostTable | None]:
    """A settings file under the options that were given on the command line."""
    from dataclasses import fields, replace

    from slipstream.engine.settings import read_settings

    settings = read_settings(path)
    context = click.get_current_context()

    def given(name: str) -> bool:
        return context.get_parameter_source(name) is click.core.ParameterSource.COMMANDLINE

    def over(config: Any, saved: Any) -> Any:
        names = [field.name for field in fields(config) if given(field.name)]
        return replace(saved, **{name: getattr(config, name) for name in names})

    # Costs were measured with the file's own model, drafter and place.
    same = not any(given(name) for name in ("model", "drafter", *vars(place)))
    return (
        model if given("model") else settings.model,
        over(speculation, settings.speculation),
        over(place, settings.engine),
        settings.costs if same else None,
    )


def _decode_plainly(
    engine: Engine, conversation: Prompt, params: SamplingParams, result: Generation
) -> Generation:
    """The same request with the same seed and rule, one token per pass."""
    from dataclasses import replace

    from slipstream.engine.engine import Engine

    plain = Engine(
        engine.model,
        tokenizer=engine.tokenizer,
        drafter="none",
        k=0,
        verify=result.verify,
        config=engine.config,
    )
    return plain.generate(conversation, replace(params, seed=result.seed))
