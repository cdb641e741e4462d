"""The import table of docs/architecture.md, checked on the syntax tree of every module."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

SRC = Path(__file__).parents[1] / "src" / "slipstream"
MODULES = sorted(SRC.rglob("*.py"))

EVERYBODY = frozenset({"errors", "config", "types"})
"""Modules of the package that anybody may import."""

PACKAGES: dict[str, frozenset[str]] = {
    "sampling": frozenset({"kernels"}),
    "verification": frozenset({"sampling"}),
    "theory": frozenset(),
    "kernels": frozenset(),
    "models": frozenset({"kernels", "sampling"}),
    "drafters": frozenset({"models", "sampling", "kernels"}),
    "engine": frozenset({"models", "drafters", "verification", "sampling"}),
    "training": frozenset({"models", "drafters", "sampling"}),
    "profiling": frozenset({"engine", "theory"}),
    "server": frozenset({"engine"}),
}
"""Which of our packages each package may import, beside itself and EVERYBODY."""

EXTRA_IMPORTS = {"engine/controller.py": frozenset({"theory"})}

OUTSIDE: dict[str, frozenset[str]] = {
    "sampling": frozenset({"numpy", "array_api_compat"}),
    "verification": frozenset({"numpy", "array_api_compat"}),
    "theory": frozenset({"numpy"}),
    "kernels": frozenset({"numpy"}),
    "models": frozenset(
        {"numpy", "tokenizers", "jinja2", "safetensors", "gguf", "platformdirs", "huggingface_hub"}
    ),
    "drafters": frozenset({"numpy", "array_api_compat", "safetensors"}),
    "engine": frozenset({"numpy", "array_api_compat"}),
    "training": frozenset(
        {"numpy", "torch", "transformers", "safetensors", "accelerate", "rich", "matplotlib"}
    ),
    "profiling": frozenset({"numpy", "scipy", "platformdirs"}),
    "server": frozenset({"numpy", "starlette", "uvicorn", "pydantic"}),
}
"""Which installed packages each package may import; the standard library is always allowed."""

HEAVY = frozenset({"torch", "transformers", "accelerate"})
VAGUE = frozenset({"utils", "util", "helpers", "helper", "core", "common", "misc"})


def name_of(module: Path) -> str:
    return module.relative_to(SRC).as_posix()


def package_of(module: Path) -> str:
    """The package below slipstream, or the module's own name at the top."""
    relative = module.relative_to(SRC)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


def only_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")


def imports(node: ast.AST, *, inside_functions: bool = True) -> Iterator[str]:
    """Dotted names imported at run time; relative ones keep their dots."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom):
            module = "." * child.level + (child.module or "")
            if module.partition(".")[0] == "slipstream":  # what is imported may be a module
                yield from (f"{module}.{alias.name}" for alias in child.names)
            else:
                yield module
        elif only_for_types(child):
            assert isinstance(child, ast.If)
            for statement in child.orelse:
                yield from imports(statement, inside_functions=inside_functions)
        elif inside_functions or not isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from imports(child, inside_functions=inside_functions)


@cache
def tree(module: Path) -> ast.Module:
    return ast.parse(module.read_text(encoding="utf-8"), str(module))


def forbidden(package: str, name: str, module: str) -> str | None:
    """Why this import breaks the table; None if it doesn't."""
    if name.startswith("."):
        return f"imports {name} relatively"
    top, _, rest = name.partition(".")
    if top == "slipstream":
        inner = rest.partition(".")[0]
        allowed = EVERYBODY | {package} | PACKAGES[package] | EXTRA_IMPORTS.get(module, frozenset())
        return None if inner in allowed else f"imports slipstream.{inner}"
    if top in sys.stdlib_module_names:
        return None
    hugging_face = package == "models" and module.startswith("models/hf")
    if top in OUTSIDE[package] or (hugging_face and top in {"torch", "transformers"}):
        return None
    return f"imports {top}"


def test_there_is_something_to_check() -> None:
    assert len(MODULES) > 20


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_imports_follow_the_table(module: Path) -> None:
    package = package_of(module)
    if package in ("cli", "__main__"):
        allowed_anything = [name for name in imports(tree(module)) if name.startswith(".")]
        assert not allowed_anything, "relative imports"
        return
    if package in EVERYBODY or package == "__init__":
        ours = [name for name in imports(tree(module)) if name.startswith("slipstream")]
        assert all(name.split(".")[1] in EVERYBODY for name in ours), ours
        return
    assert package in PACKAGES, f"{package} is missing from the table"
    complaints = [
        complaint
        for name in imports(tree(module))
        if (complaint := forbidden(package, name, name_of(module)))
    ]
    assert not complaints, f"{name_of(module)} {', '.join(complaints)}"


def loads(name: str) -> set[str]:
    """Modules of the package that loading one of them loads, itself included."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        name = waiting.pop()
        path = SRC.parent / name.replace(".", "/")
        file = path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
        if name in seen or not name.startswith("slipstream"):
            continue
        waiting.append(name.rpartition(".")[0])  # the package, or the module that holds a name
        if file.exists():
            seen.add(name)
            waiting += imports(tree(file), inside_functions=False)
    return seen


def dotted(module: Path) -> str:
    parts = module.relative_to(SRC.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


HEAVY_MODULES = {
    dotted(module)
    for module in MODULES
    if any(
        name.partition(".")[0] in HEAVY for name in imports(tree(module), inside_functions=False)
    )
}


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_torch_is_imported_only_behind_the_hugging_face_door(module: Path) -> None:
    """Loading a module loads torch only if it belongs to hf.py or to training.

    Who may import torch at all, be it in a function, is in the table; commands may, when they run.
    """
    name = dotted(module)
    if not name.startswith(("slipstream.models.hf", "slipstream.training")):
        opened = loads(name) & HEAVY_MODULES
        assert not opened, f"loading {name} loads {sorted(opened)}"


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_every_module_says_what_it_is(module: Path) -> None:
    docstring = ast.get_docstring(tree(module))
    assert docstring, f"{name_of(module)} has no docstring"
    assert docstring.splitlines()[0].rstrip().endswith((".", ":", "::", "!", "?"))


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_no_module_has_a_name_that_says_nothing(module: Path) -> None:
    assert module.stem.strip("_") not in VAGUE


def test_rules_never_hear_of_drafters() -> None:
    for module in (SRC / "verification").glob("*.py"):
        assert "slipstream.drafters" not in " ".join(imports(tree(module))), name_of(module)


def test_the_checker_sees_a_breach() -> None:
    """The negative control: each kind of breach is found, and each exception is not."""
    source = """
import torch
from typing import TYPE_CHECKING
from slipstream.drafters import base
from slipstream import engine
from . import chain
if TYPE_CHECKING:
    from slipstream.server import app
def later():
    import transformers
"""
    names = list(imports(ast.parse(source)))
    assert "slipstream.server" not in names
    found = {forbidden("verification", name, "verification/x.py") for name in names} - {None}
    assert found == {
        "imports torch",
        "imports slipstream.drafters",
        "imports slipstream.engine",
        "imports . relatively",
        "imports transformers",
    }
    assert "transformers" not in list(imports(ast.parse(source), inside_functions=False))
    assert forbidden("engine", "slipstream.theory.speedup", "engine/decode.py")
    assert not forbidden("engine", "slipstream.theory.speedup", "engine/controller.py")
    assert not forbidden("models", "torch", "models/hf.py")
    assert forbidden("models", "torch", "models/native.py")
