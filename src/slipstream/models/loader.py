"""From a model's name to a checkpoint at rest, and from there to a running target.

A name is one of four things: a built-in model of the catalog, a ``.gguf`` file, a local Hugging Face
directory, or the id of one on the Hugging Face hub. Backends are imported when one is chosen, never
before.
"""

from __future__ import annotations

from pathlib import Path

from slipstream.models.checkpoint import Checkpoint
from slipstream.models.gguf import GGUFCheckpoint


def open_checkpoint(spec: str | Path) -> Checkpoint:
    """Open a model without loading its weights."""
    return GGUFCheckpoint(Path(spec))
