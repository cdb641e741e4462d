"""A cycle as a picture in the terminal: drafted tree, accepted path, rejected branches."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.text import Text
from rich.tree import Tree

if TYPE_CHECKING:
    from slipstream.engine.trace import Fate, TracedCycle, TracedNode

MARKS: dict[Fate, tuple[str, str]] = {
    "accepted": ("✓", "bold green"),
    "dropped": ("✂", "yellow"),
    "rejected": ("✗", "red"),
    "unreached": ("·", "dim"),
}
"""Mark and style of a drafted token, by what became of it."""


def render_cycle(cycle: TracedCycle) -> Tree:
    """A cycle as a tree: probabilities beside tokens, the rule's own token where it was drawn."""
    drafted, accepted = len(cycle.nodes), len(cycle.path)
    title = Text.assemble(
        (_quoted(cycle.root), "bold"),
        (f"  position {cycle.start}: {drafted} drafted, {accepted} accepted", "dim"),
    )
    picture = Tree(title, guide_style="dim")
    _add_children(picture, cycle, -1)
    return picture


def _add_children(branch: Tree, cycle: TracedCycle, node: int) -> None:
    for child in cycle.children(node):
        _add_children(branch.add(_label(cycle.nodes[child])), cycle, child)
    if node == (cycle.path[-1] if cycle.path else -1) and cycle.kept > len(cycle.path):
        branch.add(
            Text.assemble(
                ("+ ", "bold cyan"),
                (_quoted(cycle.text), "bold cyan"),
                (f"  {cycle.origin}, p {cycle.p:.3g}", "dim"),
            )
        )


def _label(node: TracedNode) -> Text:
    mark, style = MARKS[node.fate]
    numbers = [] if node.p is None else [f"p {node.p:.3g}"]
    numbers.append(node.drawn if node.q is None else f"q {node.q:.3g}")
    return Text.assemble(
        (f"{mark} {_quoted(node.text)}", style), ("  " + ", ".join(numbers), "dim")
    )


def _quoted(text: str) -> str:
    return repr(text)
