"""Further engines around a model that is loaded already."""

from __future__ import annotations

from typing import Any

from slipstream.config import Depth
from slipstream.engine.engine import Engine


def beside(
    engine: Engine,
    *,
    drafter: Any,
    k: Depth,
    nodes: int | None = None,
    verify: str | None = None,
    costs: Any = None,
) -> Engine:
    """An engine with the same model, tokenizer and place, and another way of drafting.

    Tree width and what is let pass as a drafter are the given engine's.
    """
    return Engine(
        engine.model,
        tokenizer=engine.tokenizer,
        drafter=drafter,
        k=k,
        nodes=nodes,
        costs=costs,
        verify=verify or engine.rule.name,
        tree_width=engine.speculation.tree_width,
        allow_other_target=engine.speculation.allow_other_target,
        config=engine.config,
    )
