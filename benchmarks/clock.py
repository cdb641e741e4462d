"""Processor time in place of the clock on the wall, for machines that have other work to do.

With one thread, and only then, the time that this process computed is what it would have taken on
a quiet machine, but for caches and memory that others use as well.
"""

from __future__ import annotations

import argparse
import time

from slipstream import EngineConfig
from slipstream.engine import decode
from slipstream.profiling import timing


def add_place(parser: argparse.ArgumentParser) -> None:
    """The options that say where a model runs and what counts as its time."""
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--activations", default="bf16")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--cpu-time", action="store_true", help="of one thread, for busy machines")


def place(arguments: argparse.Namespace) -> EngineConfig:
    """Where the model runs; from here on times are the processor's if that was asked for."""
    if arguments.cpu_time:
        arguments.threads = 1
        for module in (decode, timing):
            module.perf_counter = time.process_time  # type: ignore[attr-defined]
    return EngineConfig(
        weights=arguments.weights, activations=arguments.activations, threads=arguments.threads
    )
