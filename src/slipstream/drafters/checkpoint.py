"""Drafter checkpoints: a directory with ``config.json`` and ``model.safetensors``.

Tensors are named as Hugging Face names them. ``draft``: ``model.layers.{i}.*`` and
``model.norm.weight``. ``eagle``: ``fc.weight`` (H, 2H), which acts on [embedding of the newest
token, feature], an optional ``fc.bias``, ``model.layers.{i}.*`` and an optional
``model.norm.weight``. ``medusa``: ``heads.{i}.linear.weight`` (H, H) and ``.bias`` (H,). All: an
optional ``vocabulary_map``, the ascending target token ids that a trimmed drafter can propose.

Promises: whatever doesn't fit (a damaged file, another target, another tokenizer, a missing,
surplus or misshapen tensor) is refused with the reason, and a save that is interrupted leaves
either the old checkpoint or one that loading refuses, never a mixture that loads.
H hidden, V target vocabulary, v drafter vocabulary.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from slipstream.drafters.checkpoint_config import DrafterConfig, TargetIdentity
from slipstream.drafters.storage import store
from slipstream.drafters.target_check import check_target
from slipstream.errors import CorruptModel, InvalidInput, UnsupportedModel
from slipstream.models.checkpoint import StorageFormat, StoredTensor
from slipstream.models.dequantize import BLOCK, dequantize
from slipstream.models.layout import EMBEDDING, FINAL_NORM, tensor_shapes
from slipstream.models.safetensors_file import Container, read_container, write_container

CONFIG: Final = "config.json"
WEIGHTS: Final = "model.safetensors"
VOCABULARY_MAP: Final = "vocabulary_map"

_BINDING: Final = "config_sha256"
"""Metadata of the weights file: hash of the config.json it was saved with."""
_Q8_BYTES: Final = 34
_FORMATS: Final[dict[str, StorageFormat]] = {"F32": "f32", "F16": "f16", "BF16": "bf16"}
_DTYPES: Final = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "U8"}


@dataclass(frozen=True)
class DrafterCheckpoint:
    """A drafter at rest, checked.

    Args:
        path: the directory.
        config: what it says of itself.
        tensors: name -> stored tensor, without the vocabulary map.
        vocabulary: (v,) ascending target token ids; None if it can propose any token.
    """

    path: Path
    config: DrafterConfig
    tensors: Mapping[str, StoredTensor]
    vocabulary: npt.NDArray[np.int64] | None

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def names(self) -> Sequence[str]:
        """Names of all tensors."""
        return list(self.tensors)

    def stored(self, name: str) -> StoredTensor:
        """A tensor as stored, mapped from the file."""
        return self.tensors[name]

    def tensor(self, name: str) -> npt.NDArray[np.float32]:
        """The same as float32."""
        return dequantize(self.tensors[name])


def load_drafter(
    path: str | Path, target: TargetIdentity | None = None, *, allow_other_target: bool = False
) -> DrafterCheckpoint:
    """Open a checkpoint and check it, against its target too where one is given.

    Args:
        path: the directory.
        target: whom it shall draft for.
        allow_other_target: see :func:`slipstream.drafters.target_check.check_target`.

    Raises:
        CorruptModel: a file is missing, truncated or damaged, or a tensor missing or misshapen.
        UnsupportedModel: an unknown field, architecture or tensor, or another target.
        VocabularyMismatch: trained for another tokenizer.
    """
    path = Path(path)
    text = _read_text(path / CONFIG)
    config = DrafterConfig.from_json(text, source=str(path / CONFIG))
    if target is not None:
        check_target(path, config, target, allow_other_target=allow_other_target)
    container = read_container(path / WEIGHTS)
    if container.metadata.get(_BINDING) != _digest(text):
        raise CorruptModel(f"{path}: {CONFIG} and {WEIGHTS} were not saved together")

    tensors: dict[str, StoredTensor] = {}
    vocabulary = None
    for name, (dtype, array) in container.arrays.items():
        if name == VOCABULARY_MAP:
            vocabulary = _vocabulary(path, dtype, array, config.target.vocab_size)
        else:
            tensors[name] = _stored(path, name, dtype, array, config.formats.get(name))
    for name in config.formats:
        if name not in tensors:
            raise CorruptModel(f"{path}: formats names {name!r}, which is no tensor")
    _check_shapes(path, config, {name: tensor.shape for name, tensor in tensors.items()})
    return DrafterCheckpoint(path, config, tensors, vocabulary)


def save_drafter(
    path: str | Path,
    config: DrafterConfig,
    tensors: Mapping[str, StoredTensor | npt.NDArray[Any]],
    vocabulary: Sequence[int] | npt.NDArray[np.integer[Any]] | None = None,
) -> None:
    """Write a checkpoint; what :func:`load_drafter` would refuse is not written.

    Args:
        path: the directory, made if it is missing.
        config: its ``formats`` are filled in from the tensors.
        tensors: arrays of float32 or float16, or stored tensors of any of f32, f16, bf16, q8_0;
            see :func:`slipstream.drafters.storage.store`.
        vocabulary: (v,) ascending target token ids, or None.

    Raises:
        CorruptModel, UnsupportedModel: config, tensors and vocabulary don't fit each other.
        OSError: the disk is full or not writable; an earlier checkpoint stays.
    """
    path = Path(path)
    stored = {
        name: value if isinstance(value, StoredTensor) else store(value, _plain_format(name, value))
        for name, value in tensors.items()
    }
    _check_shapes(path, config, {name: tensor.shape for name, tensor in stored.items()})
    for name, tensor in stored.items():
        if tensor.format not in _DTYPES:
            raise InvalidInput(f"tensor {name!r}: can't store {tensor.format}")
    quantised = [name for name, tensor in stored.items() if tensor.format == "q8_0"]
    formats: dict[str, Literal["q8_0"]] = dict.fromkeys(quantised, "q8_0")
    text = dataclasses.replace(config, formats=formats).to_json()
    DrafterConfig.from_json(text, source="config")

    arrays = {name: (_DTYPES[tensor.format], tensor.data) for name, tensor in stored.items()}
    if vocabulary is not None:
        ids = np.asarray(vocabulary)
        _vocabulary(path, "I32", ids, config.target.vocab_size)
        arrays[VOCABULARY_MAP] = ("I32", ids.astype("<i4"))
    path.mkdir(parents=True, exist_ok=True)
    weights, described = (path / f".{name}.{os.getpid()}" for name in (WEIGHTS, CONFIG))
    try:
        write_container(weights, Container(arrays, {_BINDING: _digest(text)}))
        described.write_text(text, encoding="utf-8")
        os.replace(weights, path / WEIGHTS)
        os.replace(described, path / CONFIG)
    finally:
        weights.unlink(missing_ok=True)
        described.unlink(missing_ok=True)


def add_targets(path: str | Path, fingerprints: Sequence[str]) -> None:
    """Write into a checkpoint that it drafts for further models; raises as saving does."""
    checkpoint = load_drafter(path)
    config = checkpoint.config
    targets = tuple(dict.fromkeys((*config.targets, *fingerprints)))
    save_drafter(
        path,
        dataclasses.replace(config, targets=targets),
        checkpoint.tensors,
        checkpoint.vocabulary,
    )


def describe(path: str | Path) -> dict[str, Any]:
    """What a checkpoint is, as plain values for a person or JSON; raises as loading does."""
    checkpoint = load_drafter(path)
    config = checkpoint.config
    numbers = sum(int(np.prod(tensor.shape)) for tensor in checkpoint.tensors.values())
    files = [Path(path) / name for name in (CONFIG, WEIGHTS)]
    vocabulary = checkpoint.vocabulary
    return {
        "kind": "drafter",
        "architecture": config.architecture,
        "target": config.target.name,
        "target_fingerprint": config.target.fingerprint,
        "further_targets": list(config.targets),
        "tokenizer_fingerprint": config.target.tokenizer_fingerprint,
        "hidden_size": config.target.hidden_size,
        "layers": 0 if config.layers is None else config.layers.num_layers,
        "heads": config.heads,
        "parameters": numbers,
        "bytes": sum(file.stat().st_size for file in files),
        "formats": sorted({tensor.format for tensor in checkpoint.tensors.values()}),
        "vocabulary": config.target.vocab_size if vocabulary is None else len(vocabulary),
        "target_vocabulary": config.target.vocab_size,
        "rank_accuracy": [list(row) for row in config.rank_accuracy],
        "training": dict(config.training),
        "license": config.license,
    }


def is_drafter(path: str | Path) -> bool:
    """Whether a directory holds a drafter of this format, by its config.json."""
    try:
        return '"slipstream_drafter"' in (Path(path) / CONFIG).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False


def expected_shapes(
    config: DrafterConfig,
) -> tuple[dict[str, tuple[int, ...]], dict[str, tuple[int, ...]]]:
    """Tensors that a checkpoint must hold and those that it may, with their shapes."""
    hidden = config.target.hidden_size
    if config.layers is None:
        required: dict[str, tuple[int, ...]] = {}
        for head in range(config.heads):
            required[f"heads.{head}.linear.weight"] = (hidden, hidden)
            required[f"heads.{head}.linear.bias"] = (hidden,)
        return required, {}
    required = tensor_shapes(config.layers.model(hidden_size=hidden, vocab_size=1))
    del required[EMBEDDING]
    if config.architecture == "draft":
        return required, {}
    required["fc.weight"] = (hidden, 2 * hidden)
    return required, {FINAL_NORM: required.pop(FINAL_NORM), "fc.bias": (hidden,)}


def _check_shapes(
    path: Path, config: DrafterConfig, present: Mapping[str, tuple[int, ...]]
) -> None:
    required, optional = expected_shapes(config)
    for name in required:
        if name not in present:
            raise CorruptModel(f"{path}: tensor {name!r} is missing")
    for name, shape in present.items():
        expected = required.get(name) or optional.get(name)
        if expected is None:
            raise UnsupportedModel(
                f"{path}: tensor {name!r} is not part of a drafter of architecture "
                f"{config.architecture!r}"
            )
        if shape != expected:
            raise CorruptModel(
                f"{path}: tensor {name!r} has shape {shape}, the configuration says {expected}"
            )


def _vocabulary(path: Path, dtype: str, array: npt.NDArray[Any], size: int) -> Any:
    ids = array.astype(np.int64)
    if dtype != "I32" or ids.ndim != 1 or not len(ids):
        raise CorruptModel(f"{path}: {VOCABULARY_MAP} must be a list of int32 token ids")
    if (np.diff(ids) <= 0).any():
        raise CorruptModel(f"{path}: {VOCABULARY_MAP} must be strictly ascending")
    if ids[0] < 0 or ids[-1] >= size:
        raise CorruptModel(f"{path}: {VOCABULARY_MAP} must lie within the vocabulary [0, {size})")
    return ids


def _stored(
    path: Path, name: str, dtype: str, array: npt.NDArray[Any], format: str | None
) -> StoredTensor:
    if format is None:
        if dtype not in _FORMATS:
            raise UnsupportedModel(f"{path}: tensor {name!r} is stored as {dtype}, unannounced")
        return StoredTensor(_FORMATS[dtype], array.shape, array)
    if dtype != "U8" or array.ndim != 2 or array.shape[1] % _Q8_BYTES:
        raise CorruptModel(
            f"{path}: tensor {name!r} is announced as q8_0: rows of uint8 blocks of {_Q8_BYTES}"
        )
    shape = (array.shape[0], array.shape[1] // _Q8_BYTES * BLOCK)
    return StoredTensor("q8_0", shape, array)


def _plain_format(name: str, array: npt.NDArray[Any]) -> Literal["f32", "f16"]:
    if array.dtype == np.float32:
        return "f32"
    if array.dtype == np.float16:
        return "f16"
    raise InvalidInput(f"tensor {name!r} is {array.dtype}; give float32, float16 or store() it")


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise CorruptModel(f"{path} can't be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise CorruptModel(f"{path} is not UTF-8 text") from None


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]
