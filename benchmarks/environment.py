"""What a figure depends on, to stand beside it: hardware, versions, commit, arguments."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("slipstream", "numpy", "torch", "transformers", "xllamacpp")


def describe(arguments: dict[str, Any]) -> dict[str, Any]:
    """Plain values for the JSON line at a benchmark's end."""
    return {
        "hardware": {
            "cpu": _cpu(),
            "cores": os.cpu_count(),
            "machine": platform.machine(),
            "load_average": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        },
        "versions": {"python": platform.python_version(), **_versions()},
        "commit": _commit(),
        "arguments": {name: _plain(value) for name, value in arguments.items()},
    }


def _versions() -> dict[str, str]:
    found = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _cpu() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((x.split(":", 1)[1].strip() for x in lines if x.startswith("model name")), "")


def _commit() -> str | None:
    """The checkout's commit, with a + if files differ from it; None outside a checkout."""
    command = ["git", "describe", "--always", "--dirty=+"]
    try:
        found = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return found.stdout.strip() or None


def _plain(value: object) -> object:
    return str(value) if isinstance(value, Path) else value
