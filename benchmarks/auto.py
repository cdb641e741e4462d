"""What ``--k auto`` is worth: its speed on each task against the best fixed k of that task.

The physics: a fixed k suits one acceptance and one machine. The best fixed k of a task is known
only afterwards, and its speed is the largest of several noisy ones, so a controller that always
made the right choice would still come out a little below 1 here; what it loses beyond that is what
learning costs. Where easy and hard stretches of a text alternate it can come out above 1.

All settings answer every question in turn, each time in another order, so that a busy moment hits
all of them alike. Under the ``coupled`` rule all emit the same tokens, which is checked, so times
are compared for the same text. The first question of every task is answered once before anything
counts. Intervals are 95 %, by bootstrap over questions; the best k is chosen again in each
resample. Prints a table and ends with one line of JSON.

    python benchmarks/auto.py
    python benchmarks/auto.py --drafter draft:PATH --temperature 0.7 --cpu-time
    python benchmarks/auto.py --questions questions.jsonl --limit 48 --output auto.json
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from clock import add_place, place
from environment import describe
from rich.console import Console
from rich.table import Table
from workloads import Question, load

from slipstream import Engine, SamplingParams

AUTO: Final = "auto"
RESAMPLES: Final = 1000


class Run(NamedTuple):
    """One answer: its task, and tokens, seconds and cycles by setting."""

    task: str
    tokens: dict[str, int]
    seconds: dict[str, float]
    cycles: dict[str, int]


def measure(
    engines: dict[str, Engine],
    questions: list[Question],
    params: SamplingParams,
    repeats: int,
) -> tuple[list[Run], int]:
    """One run per question, times summed over the repeats; how many texts differed."""
    names = list(engines)
    firsts = {question.task: question for question in reversed(questions)}
    for question in firsts.values():
        for engine in engines.values():
            engine.generate(question.messages, params)
    runs = [
        Run(q.task, dict.fromkeys(names, 0), dict.fromkeys(names, 0.0), dict.fromkeys(names, 0))
        for q in questions
    ]
    differing = turn = 0
    for _ in range(repeats):
        for question, run in zip(questions, runs, strict=True):
            texts, turn = set(), turn + 1
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                result = engines[name].generate(question.messages, params)
                texts.add(result.token_ids)
                run.tokens[name] += result.stats.emitted
                run.seconds[name] += result.stats.decode_seconds
                run.cycles[name] += result.stats.cycles
            differing += len(texts) > 1
    return runs, differing


def summarise(runs: list[Run], names: list[str]) -> dict[str, Any]:
    """Speeds of some runs, and auto's against the best fixed one with its interval."""
    tokens_NQ, seconds_NQ = (
        np.array([[getattr(run, what)[name] for run in runs] for name in names], float)
        for what in ("tokens", "seconds")
    )
    speeds_N = tokens_NQ.sum(1) / seconds_NQ.sum(1)
    auto = names.index(AUTO)
    fixed = [i for i in range(len(names)) if i != auto]
    best = max(fixed, key=lambda i: speeds_N[i])
    interval = None
    if len(runs) > 1:
        share = np.full(len(runs), 1 / len(runs))
        weights_SQ = np.random.default_rng(0).multinomial(len(runs), share, RESAMPLES)
        speeds_SN = (weights_SQ @ tokens_NQ.T) / (weights_SQ @ seconds_NQ.T)
        ratios_S = speeds_SN[:, auto] / speeds_SN[:, fixed].max(1)
        interval = np.quantile(ratios_S, [0.025, 0.975]).tolist()
    return {
        "tokens_per_second": dict(zip(names, speeds_N.tolist(), strict=True)),
        "best_fixed": names[best],
        "auto_over_best": float(speeds_N[auto] / speeds_N[best]),
        "interval": interval,
        "questions": len(runs),
        "auto_tokens_per_pass": sum(r.tokens[AUTO] for r in runs)
        / sum(r.cycles[AUTO] for r in runs),
    }


def print_table(console: Console, results: dict[str, dict[str, Any]], names: list[str]) -> None:
    table = Table(title="tokens per second", title_justify="left")
    table.add_column("task")
    for name in (*names, "auto / best fixed"):
        table.add_column(
            name if name in (AUTO, "auto / best fixed") else f"k={name}", justify="right"
        )
    for task, result in results.items():
        speeds = result["tokens_per_second"]
        cells = [
            f"[bold]{speeds[name]:.0f}[/]"
            if name == result["best_fixed"]
            else f"{speeds[name]:.0f}"
            for name in names
        ]
        ratio = f"{result['auto_over_best']:.3f}"
        if result["interval"] is not None:
            ratio += " [{:.2f}, {:.2f}]".format(*result["interval"])
        table.add_row(task, *cells, ratio.replace("[", r"\["))
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drafter", default="prompt-lookup")
    parser.add_argument("--fixed", type=int, nargs="+", default=[0, 1, 2, 3, 4, 6, 8])
    parser.add_argument("--verify", default="coupled")
    parser.add_argument("--questions", type=Path, help="JSON lines; default: prompts of our own")
    parser.add_argument("--limit", type=int, help="so many questions, spread over the file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--settings", type=Path, help="of slipstream tune: measured costs for auto")
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    add_place(parser)
    arguments = parser.parse_args()

    config = place(arguments)
    costs = None
    if arguments.settings is not None:
        from slipstream.engine.settings import read_settings

        costs = read_settings(arguments.settings).costs
    plain = Engine(arguments.model, drafter="none", k=0, config=config)

    def engine(k: int | str) -> Engine:
        return Engine(
            plain.model,
            tokenizer=plain.tokenizer,
            drafter=arguments.drafter,
            k=k,
            verify=arguments.verify,
            costs=costs if k == AUTO else None,
            config=config,
        )

    engines = {str(k): engine(k) for k in arguments.fixed} | {AUTO: engine(AUTO)}
    params = SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed
    )
    questions = load(arguments.questions, arguments.limit)
    runs, differing = measure(engines, questions, params, arguments.repeats)
    names = list(engines)
    results = {
        task: summarise([run for run in runs if run.task == task], names)
        for task in dict.fromkeys(run.task for run in runs)
    }
    results["all"] = summarise(runs, names)
    print_table(Console(), results, names)
    if differing:
        print(f"{differing} answers differ between settings")
    line = json.dumps({"results": results, "differing": differing, **describe(vars(arguments))})
    if arguments.output is not None:
        arguments.output.write_text(line + "\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    main()
