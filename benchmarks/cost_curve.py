"""What a pass of T rows costs: the number that decides whether speculation pays.

The physics: a pass of few rows has to read every weight once, so it can't take less than weight
bytes / read bandwidth, and up to some T it should take little more: C(T)/C(1) stays near 1. From
there on arithmetic is the limit and the curve climbs with T. Where the bend lies depends on the
processor's multiply-adds per byte: with bf16 or VNNI instructions beyond 8 rows, with plain AVX2
around 3. An engine whose kernels read the weights again for every row climbs from the start.

Engines take turns within a round, so that a busy machine is busy for all of them; times are lower
quartiles over the rounds. ``--cpu-time`` counts the processor time of a single thread instead of
the wall clock, which is what can still be compared when the machine has other work. ``--llama``
names a Python that has ``xllamacpp``; Hugging Face runs if torch is here.

    python benchmarks/cost_curve.py --llama peers/bin/python
    python benchmarks/cost_curve.py --shapes llama-3.2-1b smollm2-1.7b --weights q4
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from environment import describe
from random_weights import SHAPES, RandomCheckpoint

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.kernels.cores import physical_cores
from slipstream.models.base import Rows
from slipstream.models.checkpoint import Checkpoint
from slipstream.models.loader import locate, open_checkpoint
from slipstream.models.native import NativeModel

ROWS = (1, 2, 4, 5, 8, 12, 16, 24, 32)
PROMPT = 256

Pass = Callable[[int], float]
"""Seconds of one pass of this many rows; 0 rows: of a prompt of ``PROMPT`` tokens."""

Clock = Callable[[], float]

WEIGHTS: dict[str, EngineConfig] = {
    "bf16": EngineConfig(weights="bf16"),
    "int8": EngineConfig(weights="int8"),
    "q4": EngineConfig(weights="q4"),
    "int8, int8 activations": EngineConfig(weights="int8", activations="int8"),
    "q4, int8 activations": EngineConfig(weights="q4", activations="int8"),
}


def native_pass(model: NativeModel, context: int, clock: Clock) -> Pass:
    rng = np.random.default_rng(0)
    prompt = rng.integers(0, 1000, PROMPT).tolist()
    sequence, other = model.open(), model.open()
    model.prefill(sequence, prompt[:context])

    def run(rows: int) -> float:
        if rows == 0:
            begin = clock()
            model.prefill(other, prompt)
            seconds = clock() - begin
            model.truncate(other, 0)
            return seconds
        chain = Rows.chain(sequence, [5] * rows)
        begin = clock()
        model.forward(chain)
        seconds = clock() - begin
        model.commit(sequence, [])
        return seconds

    return run


def hugging_face_pass(checkpoint: Checkpoint, context: int, threads: int, clock: Clock) -> Pass:
    """bf16, eager, with a cache that is cropped after each pass."""
    import torch
    from transformers import AutoModelForCausalLM, DynamicCache, LlamaConfig

    warnings.simplefilter("ignore", FutureWarning)
    torch.set_num_threads(threads)
    shape = checkpoint.config
    config = LlamaConfig(
        vocab_size=shape.vocab_size,
        hidden_size=shape.hidden_size,
        intermediate_size=shape.intermediate_size,
        num_hidden_layers=shape.num_layers,
        num_attention_heads=shape.num_heads,
        num_key_value_heads=shape.num_kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_context,
        tie_word_embeddings=shape.tie_embeddings,
    )
    model = AutoModelForCausalLM.from_config(
        config, dtype=torch.bfloat16, attn_implementation="eager"
    ).eval()
    weights = {name: torch.tensor(checkpoint.tensor(name)) for name in checkpoint.names()}
    model.load_state_dict(weights, strict=False)
    model.tie_weights()
    cache = DynamicCache()
    with torch.inference_mode():
        model(torch.randint(0, 1000, (1, context)), past_key_values=cache)

    def run(rows: int) -> float:
        tokens = torch.randint(0, 1000, (1, rows or PROMPT))
        with torch.inference_mode():
            begin = clock()
            if rows:
                model(tokens, past_key_values=cache)
            else:
                model(tokens, past_key_values=DynamicCache(), logits_to_keep=1)
            seconds = clock() - begin
        if rows:
            cache.crop(-rows)
        return seconds

    return run


@contextmanager
def llama_pass(python: str, path: Path, context: int, threads: int, clock: Clock) -> Iterator[Pass]:
    script = Path(__file__).parent / "peers" / "llama_cpp.py"
    child = subprocess.Popen(
        [python, str(script), str(path), str(threads), clock.__name__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def ask(command: dict[str, int] | None) -> Any:
        assert child.stdin is not None and child.stdout is not None
        if command is not None:
            child.stdin.write(json.dumps(command) + "\n")
            child.stdin.flush()
        return json.loads(child.stdout.readline())

    def run(rows: int) -> float:
        if rows:
            return float(ask({"rows": rows, "start": context}))
        seconds = float(ask({"fill": PROMPT}))
        ask({"fill": context})
        return seconds

    try:
        ask(None)
        ask({"fill": context})
        yield run
    finally:
        child.kill()
        child.communicate()


def bandwidth(threads: int, clock: Clock, megabytes: int = 512) -> float:
    """GB/s of reading, all threads together, best of a few."""
    parts = np.array_split(np.ones(megabytes * 2**18, np.float32), threads)
    core, name, best = kernels.native(), kernels.isa(), 0.0
    with ThreadPoolExecutor(threads) as pool:
        for _ in range(12):
            begin = clock()
            list(pool.map(lambda part: core.largest(name, part), parts))
            best = max(best, megabytes * 2**20 / (clock() - begin) / 1e9)
    return best


def first_token(command: list[str]) -> float:
    """Seconds from process start to its end, the best of three."""
    times = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        times.append(time.perf_counter() - begin)
    return min(times)


def starts(path: Path, llama: str | None, threads: int) -> dict[str, float]:
    """Process start to the first logits of a short prompt, weights in the page cache."""
    ours = (
        "import sys\n"
        "from slipstream.config import EngineConfig\n"
        "from slipstream.models.base import Rows\n"
        "from slipstream.models.loader import load_model\n"
        f"model = load_model(sys.argv[1], EngineConfig(threads={threads})).target\n"
        "model.forward(Rows.chain(model.open(), range(100, 116)))\n"
    )
    seconds = {"slipstream": first_token([sys.executable, "-c", ours, str(path)])}
    if llama:
        script = Path(__file__).parent / "peers" / "llama_cpp.py"
        theirs = f"import sys; sys.path.insert(0, {str(script.parent)!r}); import llama_cpp; "
        theirs += f"llama_cpp.Llama(sys.argv[1], {threads}).feed(16, 0, logits=True)"
        seconds["llama.cpp"] = first_token([llama, "-c", theirs, str(path)])
    return seconds


def measure(passes: dict[str, Pass], rows: tuple[int, ...], rounds: int) -> dict[str, Any]:
    """engine -> rows -> ms, lower quartile over interleaved rounds; and prompt tokens/s."""
    times: dict[str, dict[int, list[float]]] = {name: {} for name in passes}
    for turn in range(rounds):
        for name, run in passes.items():
            run(rows[0])  # what the engine before it left in the caches is not its own time
            for count in (*rows, 0) if turn < 3 else rows:
                times[name].setdefault(count, []).append(run(count))
    result: dict[str, Any] = {}
    for name, by_rows in times.items():
        prompt = min(by_rows.pop(0))
        ms = {count: float(np.quantile(t, 0.25)) * 1e3 for count, t in by_rows.items()}
        result[name] = {"ms": ms, "prompt_tokens_per_s": PROMPT / prompt}
    return result


def table(
    title: str, rows: tuple[int, ...], result: dict[str, Any], floors: dict[str, float]
) -> None:
    print(f"\n{title}: ms per pass of T rows")
    print(f"{'':34}" + "".join(f"{count:>8}" for count in rows) + "   C(8)/C(1)  prompt tok/s")
    for name, entry in result.items():
        ms = entry["ms"]
        line = "".join(f"{ms[count]:8.1f}" for count in rows)
        ratio = ms.get(8, float("nan")) / ms[1]
        print(f"{name:34}{line}{ratio:12.2f}{entry['prompt_tokens_per_s']:14.0f}")
        if name in floors:
            print(f"{'  weights / bandwidth':34}{floors[name]:8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m", help="name or GGUF file")
    parser.add_argument("--shapes", nargs="*", default=[], choices=sorted(SHAPES))
    parser.add_argument("--weights", nargs="*", default=list(WEIGHTS), choices=list(WEIGHTS))
    parser.add_argument("--rows", nargs="*", type=int, default=list(ROWS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--context", type=int, default=64)
    parser.add_argument("--threads", type=int, default=physical_cores())
    parser.add_argument("--cpu-time", action="store_true", help="of one thread, for busy machines")
    parser.add_argument("--llama", help="a Python with xllamacpp")
    parser.add_argument("--no-hf", action="store_true", help="without Hugging Face")
    arguments = parser.parse_args()
    rows, threads = tuple(arguments.rows), 1 if arguments.cpu_time else arguments.threads
    clock = time.process_time if arguments.cpu_time else time.perf_counter

    speed = bandwidth(threads, clock)
    print(f"{kernels.isa()}, {threads} threads, {speed:.1f} GB/s read bandwidth")
    floors: dict[str, dict[str, float]] = {}
    curves: dict[str, dict[str, Any]] = {}
    summary: dict[str, Any] = {"isa": kernels.isa()}

    def run(title: str, sources: dict[str, Any], others: dict[str, Pass]) -> None:
        passes, floors[title] = {}, {}
        for weights in arguments.weights:
            config = WEIGHTS[weights]
            model = NativeModel(
                sources[config.weights],
                EngineConfig(
                    weights=config.weights, activations=config.activations, threads=threads
                ),
            )
            name = f"slipstream {weights}"
            passes[name] = native_pass(model, arguments.context, clock)
            floors[title][name] = model.weight_bytes / speed / 1e6
        result = measure(passes | others, rows, arguments.rounds)
        table(title, rows, result, floors[title])
        curves[title] = result

    if not arguments.shapes:
        path = locate(arguments.model)
        checkpoint = open_checkpoint(path)
        others: dict[str, Pass] = {}
        if not arguments.no_hf:
            others["Hugging Face bf16 eager"] = hugging_face_pass(
                checkpoint, arguments.context, threads, clock
            )
        sources = dict.fromkeys(("bf16", "int8", "q4"), checkpoint)
        if arguments.llama:
            with llama_pass(arguments.llama, path, arguments.context, threads, clock) as llama:
                run(checkpoint.name, sources, others | {"llama.cpp, the same file": llama})
        else:
            run(checkpoint.name, sources, others)
        summary["first_token_s"] = starts(path, arguments.llama, threads)
        print(f"\nprocess start to first token: {summary['first_token_s']}")
    for shape in arguments.shapes:
        sources = {name: RandomCheckpoint(shape, name) for name in ("bf16", "int8", "q4")}
        run(f"random {shape}", sources, {})

    print()
    print(
        json.dumps(
            {"bandwidth_gb_s": speed, "floor_ms": floors, "curves": curves}
            | summary
            | describe(vars(arguments))
        )
    )


if __name__ == "__main__":
    main()
