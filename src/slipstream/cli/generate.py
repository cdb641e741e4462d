"""``slipstream generate``: one prompt in, text out as it is written, and what it gained.

Turns options into the settings classes, which check them; decoding is the engine's, drawing is
:mod:`slipstream.cli.display`'s. Promises for pipes: stdout holds the text and nothing else, or with
``--json`` one object.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

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

_SAMPLING = SamplingParams()
_SPECULATION = SpeculationConfig()
_PLACE = EngineConfig()


def _option(name: str, default: Any, help: str, **more: Any) -> Callable[[Any], Any]:
    """An option whose default is the settings class's own, shown in the help."""
    return click.option(name, default=default, help=help, show_default=True, **more)


@click.command()
@click.argument("prompt", required=False)
@click.option(
    "--chat/--raw",
    default=None,
    help="Format the prompt with the model's chat template, or don't. Default: if it has one.",
)
@click.option("--system", metavar="TEXT", help="A system message before the prompt.")
@_option("--model", "smollm2-135m", "Built-in name, .gguf file, directory or hub id.")
@_option("--drafter", _SPECULATION.drafter, f"What guesses: {DRAFTERS}.")
@_option(
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
@_option("--verify", _SPECULATION.verify, f"Verification rule: {RULES}.")
@_option("--temperature", _SAMPLING.temperature, "0 is greedy.")
@_option("--top-k", _SAMPLING.top_k, "Keep the k most likely tokens; 0 keeps all.")
@_option("--top-p", _SAMPLING.top_p, "Keep the smallest set of this probability.")
@_option("--min-p", _SAMPLING.min_p, "Drop tokens less likely than this times the best.")
@_option("--repetition-penalty", _SAMPLING.repetition_penalty, "Of tokens seen; 1 is off.")
@_option("--presence-penalty", _SAMPLING.presence_penalty, "Once per token written.")
@_option("--frequency-penalty", _SAMPLING.frequency_penalty, "Per occurrence written.")
@click.option("--logit-bias", multiple=True, metavar="ID=VALUE", help="Add to a token's logit.")
@click.option("--allow", multiple=True, metavar="ID,…", help="Only these tokens.")
@click.option("--ban", multiple=True, metavar="ID,…", help="Never these tokens.")
@_option("--max-tokens", _SAMPLING.max_tokens, "Most tokens to write.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable.")
@click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token.")
@click.option("--seed", type=int, help="Same seed, same tokens. Default: a fresh one.")
@click.option("--logprobs", type=int, metavar="N", help="With --json: report the N likeliest.")
@_option("--weights", _PLACE.weights, "auto, bf16, int8, q4 or f32.")
@_option("--activations", _PLACE.activations, "bf16 or int8.")
@_option("--backend", _PLACE.backend, "auto, native, reference or hf.")
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
    params = _sampling_params(as_json=as_json, **sampling)
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
    text = _read_prompt(prompt)

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
    conversation = _conversation(engine, text, system=system, chat=chat)

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
        values = report.as_dict()
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


def _sampling_params(
    *,
    as_json: bool,
    allow: Sequence[str],
    ban: Sequence[str],
    logit_bias: Sequence[str],
    logprobs: int | None,
    **rest: Any,
) -> SamplingParams:
    if logprobs is not None and not as_json:
        raise InvalidInput("--logprobs needs --json: there is no place for them in the text")
    return SamplingParams(
        allowed_token_ids=tuple(_ids("--allow", allow)) if allow else None,
        banned_token_ids=tuple(_ids("--ban", ban)),
        logit_bias=dict(_bias(entry) for entry in logit_bias),
        logprobs=logprobs,
        **rest,
    )


def _ids(option: str, lists: Sequence[str]) -> list[int]:
    try:
        return [int(word) for words in lists for word in words.split(",")]
    except ValueError:
        raise InvalidInput(f"{option} takes token ids such as 17,42, not {lists[-1]!r}") from None


def _bias(entry: str) -> tuple[int, float]:
    token, equals, value = entry.partition("=")
    try:
        if equals:
            return int(token), float(value)
    except ValueError:
        pass
    raise InvalidInput(f"--logit-bias takes ID=VALUE such as 17=-2.5, not {entry!r}")


def _read_prompt(prompt: str | None) -> str:
    """The prompt's text, from the argument or from stdin without its last line break."""
    if (prompt is None or prompt == "-") and sys.stdin is None:
        raise InvalidInput("there is no prompt: stdin is closed")
    if prompt is None and sys.stdin.isatty():
        raise InvalidInput("there is no prompt: give one as an argument or on stdin")
    if prompt is None or prompt == "-":
        try:
            prompt = sys.stdin.buffer.read().decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"the prompt on stdin is not UTF-8 (byte {error.start})") from None
    try:
        prompt.encode("utf-8")
    except UnicodeEncodeError:
        raise InvalidInput("the prompt is not valid Unicode text") from None
    if not prompt:
        raise InvalidInput("the prompt is empty")
    return prompt


def _conversation(engine: Engine, text: str, *, system: str | None, chat: bool | None) -> Prompt:
    """The prompt as the engine takes it: messages where the model can chat, else plain text."""
    if chat is None:
        chat = engine.tokenizer.has_chat_template
    if not chat:
        if system is not None:
            raise InvalidInput("--system needs a chat template: this is a plain-text prompt")
        return text
    messages = [] if system is None else [{"role": "system", "content": system}]
    return [*messages, {"role": "user", "content": text}]


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
