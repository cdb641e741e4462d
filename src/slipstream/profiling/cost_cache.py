"""Measured cycle costs, kept by what they depend on: model, backend, precision, threads, machine.

A file that can't be read is no cache; it is measured again.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import platformdirs

from slipstream.engine.engine import Engine
from slipstream.profiling.cost import CycleCost

FORMAT: Final = 1
"""Changes when what is measured does."""


def cost_file(engine: Engine, context: int) -> Path:
    """Where the costs of this model on this machine at about this context belong."""
    about = 1 << max(context - 1, 1).bit_length()
    what = [
        engine.model.info.fingerprint,
        type(engine.model).__name__,
        asdict(engine.config),
        platform.node(),
        platform.machine(),
        os.cpu_count(),
        about,
        FORMAT,
    ]
    key = hashlib.sha256(json.dumps(what, sort_keys=True, default=str).encode()).hexdigest()[:20]
    root = os.environ.get("SLIPSTREAM_CACHE") or platformdirs.user_cache_dir("slipstream")
    return Path(root).expanduser() / "costs" / f"{key}.json"


def load_costs(path: Path) -> tuple[CycleCost, float] | None:
    """Cycle costs and the price of an emitted token, if they were kept."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        cycles: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in values["cycles"].items()
        }
        return CycleCost(**cycles), float(values["emission"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def save_costs(path: Path, cycles: CycleCost, emission: float) -> None:
    """Keep them; a cache that can't be written is none."""
    partial = path.with_suffix(f".{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial.write_text(json.dumps({"cycles": asdict(cycles), "emission": emission}))
        partial.replace(path)
    except OSError:
        partial.unlink(missing_ok=True)
