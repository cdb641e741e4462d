"""The record of a training run: what was run, on what, and how it went, beside its checkpoints.

``run.json`` holds arguments, versions, commit and the data's fingerprint; ``curve.jsonl`` a line
per measurement. A resumed run cuts the curve back to where its checkpoint was made, so the file is
that of an uninterrupted run. Knows no torch.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

from slipstream.errors import InvalidInput, MissingExtra, SlipstreamError

RUN: Final = "run.json"
CURVE: Final = "curve.jsonl"


def write_run(directory: Path, arguments: Mapping[str, Any], data_fingerprint: str) -> None:
    """Write ``run.json``."""
    values = {
        "arguments": dict(arguments),
        "data_fingerprint": data_fingerprint,
        "commit": _commit(),
        "versions": {name: _version(name) for name in ("slipstream", "torch", "numpy")},
        "python": platform.python_version(),
        "machine": {"processor": platform.machine(), "cpus": os.cpu_count()},
        "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    write_text(directory / RUN, json.dumps(values, indent=2, default=str) + "\n")


def append_curve(directory: Path, entry: Mapping[str, Any]) -> None:
    """Add a measurement; it is on disk on return."""
    try:
        with (directory / CURVE).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(entry)) + "\n")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise SlipstreamError(f"{directory / CURVE} can't be written: {error.strerror}") from None


def read_curve(directory: Path) -> list[dict[str, Any]]:
    """The measurements so far; a line that was cut off in writing is left out."""
    entries: list[dict[str, Any]] = []
    try:
        lines = (directory / CURVE).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return entries
    for line in lines:
        try:
            entries.append(json.loads(line))
        except ValueError:
            break
    return entries


def cut_curve(directory: Path, step: int) -> None:
    """Forget measurements made after ``step``."""
    kept = [entry for entry in read_curve(directory) if entry["step"] <= step]
    write_text(directory / CURVE, "".join(json.dumps(entry) + "\n" for entry in kept))


def plot(directory: Path, output: Path) -> None:
    """Draw held-out acceptance against training tokens (PNG, SVG or PDF by the name's end).

    Raises:
        MissingExtra: matplotlib is missing.
        InvalidInput: no measurements yet, or an ending that can't be drawn.
    """
    try:
        import matplotlib
    except ModuleNotFoundError:
        raise MissingExtra("plots need matplotlib: pip install 'slipstream[train]'") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    entries = [entry for entry in read_curve(directory) if "greedy" in entry]
    if not entries:
        raise InvalidInput(f"{directory} holds no measurements of held-out text yet")
    tokens = [entry["tokens"] for entry in entries]
    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for depth in range(len(entries[-1]["greedy"])):
        share = [entry["greedy"][depth] for entry in entries]
        axes.plot(tokens, share, label=f"best token, depth {depth + 1}")
    axes.plot(
        tokens, [entry["alpha"][0] for entry in entries], "k--", label="alpha, T = 1, depth 1"
    )
    axes.set(xlabel="training tokens", ylabel="held-out acceptance", ylim=(0, 1))
    axes.grid(alpha=0.3)
    axes.legend()
    try:
        figure.savefig(output)
    except ValueError as error:
        raise InvalidInput(f"{output} can't be drawn: {error}") from None
    finally:
        pyplot.close(figure)


def write_text(path: Path, text: str) -> None:
    """Replace a file as a whole.

    Raises:
        SlipstreamError: the disk is full or not writable; the old file stays.
    """
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_text(text, encoding="utf-8")
        os.replace(partial, path)
    except OSError as error:
        raise SlipstreamError(f"{path} can't be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)


def _commit() -> str | None:
    """The commit of the source tree that this module lies in, None outside of one."""
    try:
        done = subprocess.run(
            ["git", "describe", "--always", "--dirty", "--abbrev=12"],
            cwd=Path(__file__).parent,
            capture_output=True,
            text=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
