"""Light by default: what importing the package and asking for help load, and what they don't."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

HEAVY = {"torch", "transformers", "accelerate", "safetensors", "tokenizers", "gguf", "jinja2"}


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running some code."""
    script = f"import sys, json\n{code}\nprint(json.dumps(sorted(sys.modules)), file=sys.stderr)"
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    return {name.partition(".")[0] for name in json.loads(run.stderr.splitlines()[-1])}


def test_importing_slipstream_loads_nothing_but_itself() -> None:
    before = modules_after("")
    loaded = modules_after("import slipstream") - before
    assert not loaded & (HEAVY | {"numpy", "rich", "click"})
    assert {name for name in loaded if name not in sys.stdlib_module_names} == {"slipstream"}


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["theory", "--alpha", "0.75", "--c", "0.1"]]
)
def test_the_command_line_answers_without_numpy_or_any_model_library(arguments: list[str]) -> None:
    loaded = modules_after(f"from slipstream.cli.main import main\nassert main({arguments!r}) == 0")
    assert not loaded & (HEAVY | {"numpy", "rich"})


def test_help_of_generate_loads_no_model_library() -> None:
    loaded = modules_after(
        "from slipstream.cli.main import main\nassert main(['generate', '--help']) == 0"
    )
    assert not loaded & (HEAVY | {"numpy", "rich"})


def test_the_engine_loads_neither_torch_nor_transformers() -> None:
    loaded = modules_after("from slipstream import Engine")
    assert not loaded & {"torch", "transformers", "accelerate", "rich"}
