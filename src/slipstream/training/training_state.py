"""Checkpoints of a run: the drafter as it can be used, and what training needs to go on from it.

``OUTPUT/step-00001000/`` holds the drafter (``config.json``, ``model.safetensors``) and
``state.pt`` (master weights, optimizer, schedule, place in the data). A directory is written aside
and renamed, so each is whole or not there, and an interrupted or failed save leaves earlier ones as
they were. Noise and order need no generator state: both follow from seed and step.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import torch

from slipstream.drafters.checkpoint import save_drafter
from slipstream.drafters.checkpoint_config import DrafterConfig
from slipstream.drafters.storage import store
from slipstream.errors import CorruptModel, SlipstreamError
from slipstream.models.checkpoint import StoredTensor
from slipstream.models.dequantize import BLOCK, dequantize
from slipstream.training.networks import Network

_STATE: Final = "state.pt"
_NAME: Final = re.compile(r"step-(\d+)")
Precision: TypeAlias = Literal["f32", "bf16", "f16", "q8_0"]


@dataclass
class Progress:
    """Where a run stands.

    Args:
        step: optimizer steps done.
        tokens: text tokens seen, repetitions included.
        epoch, batch: the batch that comes next.
        measured: tokens at the last measurement.
        best: best held-out figure so far.
        stale: measurements since then.
    """

    step: int = 0
    tokens: int = 0
    epoch: int = 0
    batch: int = 0
    measured: int = 0
    best: float = -1.0
    stale: int = 0


def save_network(
    directory: Path,
    network: Network,
    config: DrafterConfig,
    vocabulary: npt.NDArray[np.int64] | None,
    precision: Precision = "bf16",
) -> None:
    """Write the drafter itself; see :func:`stored`.

    Raises:
        SlipstreamError: the disk is full or not writable.
    """
    tensors = {name: stored(value, precision) for name, value in network.state_dict().items()}
    try:
        save_drafter(directory, config, tensors, vocabulary)
    except OSError as error:
        raise SlipstreamError(f"{directory} can't be written: {error.strerror}") from None


def stored(value: torch.Tensor, precision: Precision) -> StoredTensor:
    """A parameter as a drafter's file holds it.

    Norms and biases stay float32; matrices whose rows are no whole blocks of q8_0 become bf16.
    """
    if value.ndim < 2:
        precision = "f32"
    elif precision == "q8_0" and value.shape[1] % BLOCK:
        precision = "bf16"
    return store(value.detach().float().cpu().numpy(), precision)


@contextmanager
def rounded(network: Network, precision: Precision) -> Iterator[None]:
    """Within, the network has the weights that a file of this precision would give back."""
    exact = {name: value.clone() for name, value in network.state_dict().items()}
    network.load_state_dict(
        {name: torch.from_numpy(dequantize(stored(v, precision))) for name, v in exact.items()}
    )
    try:
        yield
    finally:
        network.load_state_dict(exact)


def save_state(
    output: Path,
    progress: Progress,
    network: Network,
    optimizer: Any,
    config: DrafterConfig,
    vocabulary: npt.NDArray[np.int64] | None,
    run: dict[str, Any],
    precision: Precision = "bf16",
    *,
    keep: int = 2,
) -> Path:
    """Write ``step-N`` and drop all but the latest ``keep``.

    Args:
        run: what must be equal for a run to be resumed.

    Raises:
        SlipstreamError: the disk is full or not writable; earlier checkpoints stay.
    """
    final = output / f"step-{progress.step:08d}"
    partial = output / f".{final.name}.{os.getpid()}"
    state = {
        "progress": asdict(progress),
        "weights": dict(network.state_dict()),
        "optimizer": optimizer.state_dict(),
        "run": run,
    }
    try:
        partial.mkdir(parents=True, exist_ok=True)
        save_network(partial, network, config, vocabulary, precision)
        with (partial / _STATE).open("wb") as file:
            torch.save(state, file)
            file.flush()
            os.fsync(file.fileno())
        if final.exists():  # of a run that was resumed from further back
            shutil.rmtree(final)
        os.replace(partial, final)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        reason = getattr(error, "strerror", None) or str(error).splitlines()[0]
        raise SlipstreamError(f"{final} can't be written: {reason}") from None
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    for old in checkpoints(output)[:-keep]:
        shutil.rmtree(old, ignore_errors=True)
    return final


def checkpoints(output: Path) -> list[Path]:
    """The checkpoints of a run, oldest first."""
    found = [path for path in output.glob("step-*") if _NAME.fullmatch(path.name)]
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def load_state(checkpoint: Path) -> dict[str, Any]:
    """What :func:`save_state` wrote: ``progress``, ``weights``, ``optimizer``, ``run``.

    Raises:
        CorruptModel: missing or damaged.
    """
    try:
        state: dict[str, Any] = torch.load(
            checkpoint / _STATE, map_location="cpu", weights_only=True
        )
        state["progress"] = Progress(**state["progress"])
    except Exception as error:  # whatever unpickling a damaged file ends in
        raise CorruptModel(f"{checkpoint / _STATE} can't be read: {error}") from None
    return state
