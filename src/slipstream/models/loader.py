"""From a model's name to a checkpoint at rest, and from there to a running target.

A name is one of four things: a built-in model of the catalog, a ``.gguf`` file, a local Hugging
Face directory, or the id of one on the Hugging Face hub. Which backend runs it is decided here;
backends are imported when one is chosen, never before.
"""

from __future__ import annotations

import importlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from slipstream.config import EngineConfig
from slipstream.errors import (
    CorruptModel,
    DownloadError,
    MissingExtra,
    UnknownName,
    Unsupported,
    UnsupportedModel,
)
from slipstream.models import catalog
from slipstream.models.base import TargetModel
from slipstream.models.catalog import Progress
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.gguf import GGUFCheckpoint
from slipstream.models.hf_tokenizer import directory_tokenizer
from slipstream.models.safetensors_dir import DirectoryCheckpoint
from slipstream.models.tokenizer import Tokenizer

_HUB_ID: Final = re.compile(r"[\w.-]+/[\w.-]+")
_HUB_FILES: Final = ["*.json", "*.safetensors", "*.jinja"]
_DTYPES: Final = {"auto": None, "f32": "float32", "bf16": "bfloat16"}


@dataclass(frozen=True)
class LoadedModel:
    """A model that is ready to run, and its vocabulary."""

    target: TargetModel
    tokenizer: Tokenizer


def open_checkpoint(spec: str | Path, *, progress: Progress | None = None) -> Checkpoint:
    """Open a model without loading its weights; a catalog model is fetched if need be.

    Raises:
        UnknownName: neither a catalog name nor a file, a directory or a hub id.
        CorruptModel: a directory without a model.
        ModelError: a file that can't be used.
        DownloadError: it has to be fetched, and can't be.
    """
    return _open(locate(spec, progress=progress), str(spec))


def load_model(
    spec: str | Path, config: EngineConfig, *, progress: Progress | None = None
) -> LoadedModel:
    """Load a model into the backend that the configuration asks for.

    ``auto`` is the compiled core, else the numpy reference, both for the Llama family; anything
    else runs through Hugging Face.

    Raises:
        Unsupported: the backend can't run here, or not with these settings.
        MissingExtra: Hugging Face is needed and not installed.
        Others: see :func:`open_checkpoint`.
    """
    path = locate(spec, progress=progress)
    if config.backend == "hf":
        return _load_hugging_face(path, str(spec), config)
    try:
        checkpoint = _open(path, str(spec))
        tokenizer = checkpoint.tokenizer
    except UnsupportedModel as reason:
        if config.backend != "auto" or not path.is_dir():
            raise
        try:
            return _load_hugging_face(path, str(spec), config)
        except MissingExtra as missing:
            raise MissingExtra(f"{reason}; {missing}") from None
    if config.device not in (None, "cpu"):
        raise Unsupported(
            f"device={config.device!r} is for backend 'hf'; {spec} would run on the CPU here"
        )
    native = _native_available()
    if config.backend == "native" and not native:
        raise Unsupported(
            "backend 'native' needs the compiled core, which isn't part of this installation; "
            "backend 'reference' runs without it, slower"
        )
    if native and config.backend != "reference":
        native_model = importlib.import_module("slipstream.models.native").NativeModel
        target: TargetModel = native_model(checkpoint, config, progress=progress)
        return LoadedModel(target, tokenizer)
    for name, valid in (("weights", ("auto", "f32")), ("activations", ("bf16",))):
        if (value := getattr(config, name)) not in valid:
            raise Unsupported(f"the numpy reference computes in float32 and has no {name}={value}")
    from slipstream.models.reference import ReferenceModel

    return LoadedModel(ReferenceModel(checkpoint), tokenizer)


def locate(spec: str | Path, *, progress: Progress | None = None) -> Path:
    """The local file or directory of a model; fetches what isn't here yet.

    Raises:
        UnknownName, DownloadError: see :func:`open_checkpoint`.
    """
    if isinstance(spec, str) and spec in catalog.names():
        return catalog.cached_path(spec) or catalog.pull(spec, progress=progress)
    path = Path(spec).expanduser()
    if spec and path.exists():
        return path
    if isinstance(spec, str) and _HUB_ID.fullmatch(spec) and path.suffix != ".gguf":
        return _hub_snapshot(spec)
    raise UnknownName(
        "model",
        str(spec),
        [*catalog.names(), "a .gguf file", "a Hugging Face directory", "a hub id such as org/name"],
    )


def _open(path: Path, spec: str) -> Checkpoint:
    if path.is_dir():
        if not (path / "config.json").exists():
            raise CorruptModel(
                f"{path} holds no model: a model is a directory with config.json, tokenizer and "
                "safetensors as Hugging Face writes it, a .gguf file, or a built-in name"
            )
        return DirectoryCheckpoint(path, name=spec if _HUB_ID.fullmatch(spec) else None)
    return GGUFCheckpoint(path)


def _load_hugging_face(path: Path, spec: str, config: EngineConfig) -> LoadedModel:
    if config.weights not in _DTYPES or config.activations != "bf16":
        raise Unsupported(
            "backend 'hf' takes weights auto, f32 or bf16 and leaves activations to torch, "
            f"not weights={config.weights}, activations={config.activations}"
        )
    try:
        hugging_face = importlib.import_module("slipstream.models.hf")
    except ModuleNotFoundError as error:
        if error.name is not None and error.name.split(".")[0] not in ("torch", "transformers"):
            raise
        raise MissingExtra(
            f"running {spec} through Hugging Face needs torch: pip install 'slipstream[torch]'"
        ) from None
    tokenizer = directory_tokenizer(path) if path.is_dir() else GGUFCheckpoint(path).tokenizer
    target = hugging_face.HuggingFaceModel.from_pretrained(
        path if path.is_dir() else path.parent,
        device=config.device,
        dtype=_DTYPES[config.weights],
        gguf_file=None if path.is_dir() else path.name,
    )
    return LoadedModel(target, tokenizer)


def _native_available() -> bool:
    try:
        kernels = importlib.import_module("slipstream.kernels")
    except ModuleNotFoundError:
        return False
    return bool(kernels.available())


def _hub_snapshot(name: str) -> Path:
    """The local copy of a hub model, downloaded unless it is there; honours HF_HUB_OFFLINE."""
    import huggingface_hub
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(huggingface_hub.snapshot_download(name, allow_patterns=_HUB_FILES))
    except LocalEntryNotFoundError:
        raise DownloadError(
            f"{name} isn't in the local Hugging Face cache and the hub can't be reached"
        ) from None
    except (HfHubHTTPError, OSError, ValueError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DownloadError(
            f"{name} can't be fetched from the Hugging Face hub: {reason}"
        ) from None
