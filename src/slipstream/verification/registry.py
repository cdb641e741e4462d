"""Verification rules by name. A new rule is one file, one line here and one test file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any, Final

from slipstream.errors import UnknownName
from slipstream.verification.argmax_match import ArgmaxMatch
from slipstream.verification.base import VerificationRule
from slipstream.verification.block import Block
from slipstream.verification.coupled import Coupled
from slipstream.verification.greedy_siblings import GreedySiblings
from slipstream.verification.recursive import Recursive
from slipstream.verification.rejection import Rejection
from slipstream.verification.typical import Typical

RULES: Final[Mapping[str, type[VerificationRule]]] = MappingProxyType(
    {
        rule.name: rule
        for rule in (Rejection, Block, Coupled, Recursive, GreedySiblings, ArgmaxMatch, Typical)
    }
)


def get_rule(name: str, **options: Any) -> VerificationRule:
    """Build a rule.

    Args:
        name: a key of ``RULES``.
        options: the rule's own settings, such as ``epsilon`` of ``typical``.

    Raises:
        UnknownName: no such rule, or no such option of it; lists the known ones.
        InvalidInput: an option outside its range.
    """
    if not isinstance(name, str) or name not in RULES:
        raise UnknownName("verification rule", name, RULES)
    rule = RULES[name]
    valid = [field.name for field in fields(rule)]  # type: ignore[arg-type]
    for option in options:
        if option not in valid:
            raise UnknownName(f"option of rule {name!r}", option, valid)
    return rule(**options)
