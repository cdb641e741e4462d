"""What a drafter checkpoint is, as a table; the drafters' half of ``slipstream inspect``."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def print_drafter(path: str, facts: dict[str, Any]) -> None:
    """Print the facts of :func:`slipstream.drafters.checkpoint.describe`."""
    if facts["heads"]:
        parts = f"{facts['heads']} heads"
    else:
        parts = f"{facts['layers']} block" + "s" * (facts["layers"] != 1)
    whole, own = facts["target_vocabulary"], facts["vocabulary"]
    share = "all tokens" if own == whole else f"{own:,} of {whole:,} tokens"
    rows = {
        "drafter": f"{facts['architecture']}, {parts} of width {facts['hidden_size']}",
        "drafts for": f"{facts['target']}, fingerprint {facts['target_fingerprint']}",
        "tokenizer": f"fingerprint {facts['tokenizer_fingerprint']}",
        "parameters": f"{facts['parameters'] / 1e6:,.2f} M beside the target's own",
        "weights": f"{facts['bytes'] / 1e6:,.2f} MB in {', '.join(facts['formats'])}",
        "vocabulary": share,
        "training": ", ".join(f"{key} {value}" for key, value in facts["training"].items())
        or "not stated",
        "licence": facts["license"] or "not stated",
    }
    if facts["further_targets"]:
        rows["drafts for"] += f"; also for {', '.join(facts['further_targets'])}"
    if facts["rank_accuracy"]:
        best = [f"{row[0]:.2f}" for row in facts["rank_accuracy"] if row]
        rows["accuracy"] = f"best token right at depth 1, 2, …: {', '.join(best)}"
    table = Table(title=Text(path), show_header=False, title_justify="left")
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in rows.items():
        table.add_row(Text(key), Text(value))
    Console().print(table)
