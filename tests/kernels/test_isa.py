"""One binary for all processors: the best instruction set is chosen, or the one that is named."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from slipstream import kernels
from slipstream.errors import UnknownName
from slipstream.kernels.cores import physical_cores


def test_every_machine_has_the_portable_path() -> None:
    assert kernels.isas()[-1] == "portable"
    assert set(kernels.isas()) <= {"avx512_bf16", "avx512", "avx2", "portable"}


@pytest.mark.parametrize("name", kernels.isas())
def test_the_environment_forces_an_instruction_set(name: str) -> None:
    code = "from slipstream import kernels; print(kernels.isa())"
    environment = os.environ | {kernels.ISA_VARIABLE: name}
    run = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert run.stdout.strip() == name


def test_an_unknown_instruction_set_is_refused_with_those_that_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(kernels.ISA_VARIABLE, "mmx")
    with pytest.raises(UnknownName, match=r"mmx.*portable"):
        kernels.isa()


def test_importing_the_face_loads_no_extension() -> None:
    code = (
        "import sys, slipstream.kernels; "
        "assert 'slipstream.kernels._native' not in sys.modules; assert 'numpy' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_there_is_a_physical_core() -> None:
    assert 1 <= physical_cores() <= (os.cpu_count() or 1)


def test_hyperthreads_count_once(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> None:
    from pathlib import Path

    topology = Path(str(tmp_path))
    for cpu in range(4):
        (topology / f"cpu{cpu}" / "topology").mkdir(parents=True)
        siblings = "0,2" if cpu % 2 == 0 else "1,3"
        (topology / f"cpu{cpu}" / "topology" / "thread_siblings_list").write_text(siblings)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1, 2, 3}, raising=False)
    assert physical_cores(topology) == 2
