"""Drafters by name: ``none``, ``prompt-lookup``, ``draft:PATH_OR_NAME``, ``eagle2`` and others.

A specification is a registered name, followed after a colon by an argument where the drafter takes
one. Adding a drafter is one file, one line here and one test file. Nothing is loaded before it is
asked for. ``auto`` is no drafter of its own but a choice among them, made by the target.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Literal

from slipstream.config import EngineConfig
from slipstream.drafters.base import Drafter
from slipstream.drafters.composite import load_composite
from slipstream.drafters.default import AUTO, default_spec
from slipstream.drafters.draft_model import load_draft_model
from slipstream.drafters.eagle import load_eagle, load_eagle2
from slipstream.drafters.medusa import load_medusa
from slipstream.drafters.no_drafter import NoDrafter
from slipstream.drafters.prompt_lookup import load_prompt_lookup
from slipstream.errors import InvalidInput, UnknownName
from slipstream.models.base import TargetModel

if TYPE_CHECKING:
    from slipstream.models.tokenizer import Tokenizer


@dataclass(frozen=True, kw_only=True)
class DrafterContext:
    """What a drafter may need to be built.

    Args:
        target: the model it will draft for.
        tokenizer: the target's.
        config: where and how models run.
        tree_width: most children of a node; None is what the drafter thinks best.
        allow_other_target: let a checkpoint draft for a model that it wasn't made for.
    """

    target: TargetModel
    tokenizer: Tokenizer
    config: EngineConfig
    tree_width: int | None = None
    allow_other_target: bool = False


@dataclass(frozen=True, kw_only=True)
class Registration:
    """How a name becomes a drafter.

    Args:
        build: makes it from the argument ("" without one) and the context.
        argument: whether the name takes an argument.
        usage: the specification as a user writes it.
    """

    build: Callable[[str, DrafterContext], Drafter]
    argument: Literal["none", "optional", "required"] = "none"
    usage: str


DRAFTERS: Final[Mapping[str, Registration]] = MappingProxyType(
    {
        "none": Registration(build=lambda _, __: NoDrafter(), usage="none"),
        "prompt-lookup": Registration(
            build=load_prompt_lookup, argument="optional", usage="prompt-lookup[:SHORTEST_MATCH]"
        ),
        "draft": Registration(
            build=load_draft_model, argument="required", usage="draft:PATH_OR_NAME"
        ),
        "medusa": Registration(build=load_medusa, argument="optional", usage="medusa[:PATH]"),
        "eagle": Registration(build=load_eagle, argument="optional", usage="eagle[:PATH]"),
        "eagle2": Registration(build=load_eagle2, argument="optional", usage="eagle2[:PATH]"),
        "composite": Registration(
            build=load_composite, argument="required", usage="composite:DRAFTER+DRAFTER"
        ),
    }
)


def parse_spec(spec: str, drafters: Mapping[str, Registration] = DRAFTERS) -> tuple[str, str]:
    """Split ``name:argument`` and check both; the argument is empty where there is none.

    Raises:
        UnknownName: no such drafter; lists the known ones.
        InvalidInput: an argument is missing, or given to a drafter that takes none.
    """
    if spec == AUTO:
        return AUTO, ""
    name, colon, argument = spec.partition(":")
    if name not in drafters:
        raise UnknownName("drafter", name, (AUTO, *(entry.usage for entry in drafters.values())))
    entry = drafters[name]
    if entry.argument == "none" and colon:
        raise InvalidInput(f"drafter {name!r} takes no argument, got {spec!r}")
    if not argument and (entry.argument == "required" or colon):
        raise InvalidInput(f"drafter {name!r} needs an argument: {entry.usage}")
    return name, argument


def make_drafter(
    spec: str, context: DrafterContext, drafters: Mapping[str, Registration] = DRAFTERS
) -> Drafter:
    """Build the drafter that a specification names.

    Raises:
        UnknownName, InvalidInput: see :func:`parse_spec`; or whatever its model raises on loading.
    """
    name, argument = parse_spec(spec, drafters)
    if name == AUTO:
        name, argument = parse_spec(default_spec(context), drafters)
    return drafters[name].build(argument, context)
