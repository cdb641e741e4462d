"""Names of models, and which backend runs them."""

from __future__ import annotations

import json
import shutil
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from slipstream.config import EngineConfig
from slipstream.errors import CorruptModel, DownloadError, MissingExtra, UnknownName, Unsupported
from slipstream.models import catalog, loader
from slipstream.models.gguf import GGUFCheckpoint
from slipstream.models.loader import load_model, open_checkpoint
from slipstream.models.reference import ReferenceModel
from slipstream.models.safetensors_dir import DirectoryCheckpoint


@pytest.fixture
def no_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "_native_available", lambda: False)


@pytest.fixture
def foreign_dir(tiny_model_dir: Path, tmp_path: Path) -> Path:
    """An architecture that only Hugging Face runs."""
    directory = shutil.copytree(tiny_model_dir, tmp_path / "foreign")
    config = json.loads((directory / "config.json").read_text()) | {"model_type": "gpt_neox"}
    (directory / "config.json").write_text(json.dumps(config))
    return directory


def test_a_directory_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CorruptModel, match=r"holds no model: a model is a directory with config"):
        open_checkpoint(tmp_path)


def test_files_and_directories_are_opened_by_kind(tiny_model_dir: Path, tiny_gguf: Path) -> None:
    assert isinstance(open_checkpoint(tiny_model_dir), DirectoryCheckpoint)
    assert isinstance(open_checkpoint(str(tiny_gguf)), GGUFCheckpoint)
    assert open_checkpoint(tiny_model_dir).name == "tiny-llama"
    assert open_checkpoint(tiny_gguf).name == "tiny"


def test_a_catalog_name_is_fetched_only_if_it_is_not_here(
    tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pulled: list[str] = []
    cached: list[Path | None] = [None, tiny_gguf]
    monkeypatch.setattr(catalog, "cached_path", lambda name: cached.pop(0))
    monkeypatch.setattr(catalog, "pull", lambda name, progress: pulled.append(name) or tiny_gguf)
    assert open_checkpoint("smollm2-135m").name == "tiny"
    assert open_checkpoint("smollm2-135m").name == "tiny"
    assert pulled == ["smollm2-135m"]


@pytest.mark.parametrize("name", ["nope", "no/such.gguf", "./nowhere/at/all", "a/b/c", ""])
def test_unknown_names_say_what_is_accepted(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match=r"smollm2-135m") as caught:
        open_checkpoint(name)
    for kind in (".gguf file", "Hugging Face directory", "hub id"):
        assert kind in str(caught.value)


def test_a_hub_id_comes_from_the_local_cache_or_is_refused_in_a_line(
    tiny_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadError, match=r"org/tiny.*hub can't be reached") as caught:
        open_checkpoint("org/tiny")
    assert "\n" not in str(caught.value)

    repository = tmp_path / "models--org--tiny"
    commit = "0123456789012345678901234567890123456789"
    shutil.copytree(tiny_model_dir, repository / "snapshots" / commit)
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    assert open_checkpoint("org/tiny").name == "org/tiny"


@pytest.mark.usefixtures("no_kernels")
def test_without_the_compiled_core_the_reference_runs(tiny_model_dir: Path) -> None:
    for backend in ("auto", "reference"):
        loaded = load_model(tiny_model_dir, EngineConfig(backend=backend))
        assert isinstance(loaded.target, ReferenceModel)
        assert loaded.tokenizer.vocab_size == loaded.target.info.vocab_size == 320


def test_with_the_compiled_core_it_runs(tiny_gguf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = types.ModuleType("slipstream.models.native")
    native.NativeModel = lambda checkpoint, config, progress: ("native", checkpoint.name)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slipstream.models.native", native)
    monkeypatch.setattr(loader, "_native_available", lambda: True)
    for backend in ("auto", "native"):
        loaded = load_model(tiny_gguf, EngineConfig(backend=backend, weights="q4"))
        assert loaded.target == ("native", "tiny")
    reference = load_model(tiny_gguf, EngineConfig(backend="reference"))
    assert isinstance(reference.target, ReferenceModel)


@pytest.mark.usefixtures("no_kernels")
@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"backend": "native"}, "compiled core"),
        ({"backend": "reference", "weights": "q4"}, "weights=q4"),
        ({"weights": "int8"}, "weights=int8"),
        ({"activations": "int8"}, "activations=int8"),
        ({"backend": "hf", "weights": "q4"}, "weights=q4"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(
    settings: dict[str, Any], reason: str, tiny_model_dir: Path
) -> None:
    with pytest.raises(Unsupported, match=reason):
        load_model(tiny_model_dir, EngineConfig(**settings))


def test_hugging_face_without_torch_names_the_extra(
    tiny_model_dir: Path, foreign_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "slipstream.models.hf", raising=False)
    monkeypatch.setattr(
        loader.importlib,
        "import_module",
        lambda name: (_ for _ in ()).throw(ModuleNotFoundError(name="torch")),
    )
    with pytest.raises(MissingExtra, match=r"slipstream\[torch\]"):
        load_model(tiny_model_dir, EngineConfig(backend="hf"))
    with pytest.raises(MissingExtra, match=r"gpt_neox.*slipstream\[torch\]"):
        load_model(foreign_dir, EngineConfig())


@pytest.mark.parametrize("source", ["directory", "gguf", "foreign"])
def test_hugging_face_gets_what_it_is_asked_for(
    source: str,
    tiny_model_dir: Path,
    tiny_gguf: Path,
    foreign_dir: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[Any, dict[str, Any]]] = []

    class HuggingFaceModel:
        @classmethod
        def from_pretrained(cls, path: Path, **options: Any) -> str:
            calls.append((path, options))
            return "hf"

    module = types.ModuleType("slipstream.models.hf")
    module.HuggingFaceModel = HuggingFaceModel  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "slipstream.models.hf", module)
    path = {"directory": tiny_model_dir, "gguf": tiny_gguf, "foreign": foreign_dir}[source]
    backend = "auto" if source == "foreign" else "hf"
    config = EngineConfig(backend=backend, weights="f32", device="cpu")
    loaded = load_model(path, config)
    assert loaded.target == "hf"
    assert loaded.tokenizer.vocab_size == 320
    file = tiny_gguf.name if source == "gguf" else None
    expected = {"device": "cpu", "dtype": "float32", "gguf_file": file}
    assert calls == [(tiny_gguf.parent if file else path, expected)]


@pytest.mark.parametrize("backend", ["auto", "reference"])
def test_a_device_that_the_backend_would_ignore_is_refused(
    backend: str, tiny_model_dir: Path
) -> None:
    with pytest.raises(Unsupported, match="'cuda:0' is for backend 'hf'"):
        load_model(tiny_model_dir, EngineConfig(backend=backend, device="cuda:0"))
