"""Refuse what a rule can't judge, before it looks at a probability."""

from __future__ import annotations

from slipstream.errors import InvalidInput
from slipstream.types import Draft
from slipstream.verification.base import VerificationRule


def check(rule: VerificationRule, draft: Draft) -> None:
    """Compare a draft's shape and receipts with what the rule declares.

    Raises:
        InvalidInput: a node with several children for a chain rule, a receipt of a type that the
            rule can't judge, or siblings with the same token.
    """
    if not draft.tree.tokens:
        return
    for receipt in draft.receipts:
        if receipt is not None and type(receipt) not in rule.receipts:
            valid = ", ".join(sorted(kind.__name__ for kind in rule.receipts))
            raise InvalidInput(
                f"rule {rule.name!r} can't judge children drawn as {type(receipt).__name__};"
                f" valid: {valid}"
            )
    tree = draft.tree
    if not rule.trees and len(set(tree.parents)) < len(tree):
        raise InvalidInput(f"rule {rule.name!r} judges chains; this draft has siblings")
    if len(set(zip(tree.parents, tree.tokens, strict=True))) < len(tree):
        raise InvalidInput("siblings must have different tokens")
