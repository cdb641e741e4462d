"""How to sample, as options of a command, and from those to :class:`SamplingParams`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import click

from slipstream.config import SamplingParams
from slipstream.errors import InvalidInput

_SAMPLING: Final = SamplingParams()


def option(name: str, default: Any, help: str, **more: Any) -> Callable[[Any], Any]:
    """An option whose default is the settings class's own, shown in the help."""
    return click.option(name, default=default, help=help, show_default=True, **more)


def sampling_options(command: Any) -> Any:
    """Decorate a command with them; it gets the arguments of :func:`sampling_params`."""
    options = [
        option("--temperature", _SAMPLING.temperature, "0 is greedy."),
        option("--top-k", _SAMPLING.top_k, "Keep the k most likely tokens; 0 keeps all."),
        option("--top-p", _SAMPLING.top_p, "Keep the smallest set of this probability."),
        option("--min-p", _SAMPLING.min_p, "Drop tokens less likely than this times the best."),
        option("--repetition-penalty", _SAMPLING.repetition_penalty, "Of tokens seen; 1 is off."),
        option("--presence-penalty", _SAMPLING.presence_penalty, "Once per token written."),
        option("--frequency-penalty", _SAMPLING.frequency_penalty, "Per occurrence written."),
        click.option(
            "--logit-bias", multiple=True, metavar="ID=VALUE", help="Add to a token's logit."
        ),
        click.option("--allow", multiple=True, metavar="ID,…", help="Only these tokens."),
        click.option("--ban", multiple=True, metavar="ID,…", help="Never these tokens."),
        option("--max-tokens", _SAMPLING.max_tokens, "Most tokens to write."),
        click.option(
            "--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable."
        ),
        click.option("--ignore-eos", is_flag=True, help="Go on after the model's end token."),
        click.option("--seed", type=int, help="Same seed, same tokens. Default: a fresh one."),
        click.option(
            "--logprobs", type=int, metavar="N", help="With --json: report the N likeliest."
        ),
    ]
    for add in reversed(options):
        command = add(command)
    return command


def sampling_params(
    *,
    as_json: bool,
    allow: Sequence[str],
    ban: Sequence[str],
    logit_bias: Sequence[str],
    logprobs: int | None,
    **rest: Any,
) -> SamplingParams:
    """The settings that these options ask for.

    Raises:
        InvalidInput: a malformed list, a value outside its range, or logprobs without JSON.
    """
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
