"""Which drafter a target gets when nobody names one: ``auto``.

A table, by model, of what was fastest in the benchmark of ``docs/drafters.md`` among the exact
choices. A model without an entry, or a backend that can't lend its weights to a learned drafter,
gets prompt lookup, which needs neither training nor a second model.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.drafters.decoder import SharedWeights
from slipstream.drafters.learned import shipped_for

if TYPE_CHECKING:
    from slipstream.drafters.registry import DrafterContext

AUTO: Final = "auto"
"""The specification that asks for this choice."""

WITHOUT_TRAINING: Final = "prompt-lookup"

DEFAULTS: Final[Mapping[str, str]] = MappingProxyType({})
"""Model of the shipped drafters, such as ``smollm2-135m``, to the specification that it gets."""


def default_spec(context: DrafterContext, defaults: Mapping[str, str] = DEFAULTS) -> str:
    """The specification that ``auto`` stands for."""
    if not defaults or not isinstance(context.target, SharedWeights):
        return WITHOUT_TRAINING
    target = TargetIdentity.of(context.target.info, context.tokenizer)
    models = {name.partition("/")[0] for name in shipped_for(target)}
    return next((defaults[model] for model in sorted(models & {*defaults})), WITHOUT_TRAINING)
