"""What speculation gains on this machine: each setting against plain decoding, in one run.

The physics: decoding is bound by reading the weights, so a pass over k + 1 rows costs C(k+1)/C(1),
little more than one over a single row, and emits as many tokens as were accepted, plus one. The
gain is acceptance length x C(1)/C(k+1), less what drafting costs. It is largest where the text
repeats its prompt (summaries, retrieval, code) and below 1 where nothing can be guessed.

Settings take turns on every question, so that a busy moment hits all of them; a setting's speed is
all its tokens by all its decoding time. Prints a table and ends with one line of JSON.

    python benchmarks/run.py
    python benchmarks/run.py --settings none prompt-lookup:k=3 prompt-lookup:k=8 --temperature 1
    python benchmarks/run.py --questions questions.jsonl --limit 60 --output results.json
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from clock import add_place, place
from environment import describe
from rich.console import Console
from rich.table import Table
from workloads import Question, load

from slipstream import Engine, Generation, SamplingParams


@dataclass
class Tally:
    """What one setting did on the questions of one task."""

    tokens: int = 0
    cycles: int = 0
    seconds: float = 0.0
    draft: float = 0.0
    target: float = 0.0
    alphas: list[float] = field(default_factory=list)
    differing: int = 0

    def add(self, result: Generation, plain: Generation) -> None:
        stats = result.stats
        self.tokens += stats.emitted
        self.cycles += stats.cycles
        self.seconds += stats.decode_seconds
        self.draft += stats.draft_seconds
        self.target += stats.target_seconds
        self.alphas += stats.alphas
        self.differing += result.token_ids != plain.token_ids

    @property
    def speed(self) -> float:
        return self.tokens / self.seconds

    def as_dict(self, plain: Tally) -> dict[str, Any]:
        return {
            "tokens": self.tokens,
            "tokens_per_second": self.speed,
            "speedup": self.speed / plain.speed,
            "acceptance_length": self.tokens / self.cycles,
            "alpha": sum(self.alphas) / len(self.alphas) if self.alphas else None,
            "ms_per_pass": 1e3 * self.target / self.cycles,
            "draft_share": self.draft / self.seconds,
            "rest_share": (self.seconds - self.draft - self.target) / self.seconds,
            "texts_unlike_plain": self.differing,
        }


def parse_setting(text: str) -> dict[str, Any]:
    """``drafter[:argument][:k=K][:nodes=N][:verify=RULE]`` to the engine's arguments."""
    words, options = [], {}
    for word in text.split(":"):
        name, equals, value = word.partition("=")
        if equals and name in ("k", "nodes", "verify"):
            options[name] = value if name == "verify" or value == "auto" else int(value)
        else:
            words.append(word)
    return {"drafter": ":".join(words), **options}


def measure(
    engines: dict[str, Engine], questions: list[Question], params: SamplingParams, repeats: int
) -> dict[str, dict[str, Tally]]:
    """setting -> task -> tally; ``plain`` is among the settings."""
    tallies: dict[str, dict[str, Tally]] = {name: defaultdict(Tally) for name in engines}
    for engine in engines.values():
        engine.generate(questions[0].messages, SamplingParams(max_tokens=8))  # warm up
    for _ in range(repeats):
        for question in questions:
            results = {n: e.generate(question.messages, params) for n, e in engines.items()}
            for name, result in results.items():
                for task in (question.task, "all"):
                    tallies[name][task].add(result, results["plain"])
    return tallies


def print_tables(console: Console, tallies: dict[str, dict[str, Tally]]) -> None:
    plain = tallies["plain"]
    tasks = [task for task in plain if task != "all"]
    table = Table(title="all questions", title_justify="left")
    for name in ("setting", "tokens/s", "speedup", "tokens/pass", "alpha", "ms/pass", "rest"):
        table.add_column(name, justify="left" if name == "setting" else "right")
    for name, by_task in tallies.items():
        row = by_task["all"].as_dict(plain["all"])
        table.add_row(
            name,
            f"{row['tokens_per_second']:.0f}",
            f"{row['speedup']:.2f}×",
            f"{row['acceptance_length']:.2f}",
            "" if row["alpha"] is None else f"{row['alpha']:.2f}",
            f"{row['ms_per_pass']:.2f}",
            f"{100 * row['rest_share']:.0f} %",
        )
    console.print(table)
    table = Table(title="speedup by task", title_justify="left")
    table.add_column("setting")
    for task in tasks:
        table.add_column(task, justify="right")
    for name, by_task in tallies.items():
        cells = [f"{by_task[task].speed / plain[task].speed:.2f}×" for task in tasks]
        table.add_row(name, *cells)
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--settings",
        nargs="+",
        default=["prompt-lookup:k=2", "prompt-lookup:k=5", "prompt-lookup:k=8"],
        help="drafter[:argument][:k=K][:nodes=N][:verify=RULE] …; plain decoding is always there",
    )
    parser.add_argument("--questions", type=Path, help="JSON lines; default: prompts of our own")
    parser.add_argument("--limit", type=int, help="so many questions, spread over the file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    add_place(parser)
    arguments = parser.parse_args()

    config = place(arguments)
    plain = Engine(arguments.model, drafter="none", k=0, config=config)
    engines = {"plain": plain}
    for setting in arguments.settings:
        engines[setting] = Engine(
            plain.model, tokenizer=plain.tokenizer, config=config, **parse_setting(setting)
        )
    params = SamplingParams(
        max_tokens=arguments.max_tokens, temperature=arguments.temperature, seed=arguments.seed
    )
    questions = load(arguments.questions, arguments.limit)
    tallies = measure(engines, questions, params, arguments.repeats)
    print_tables(Console(), tallies)
    results = {
        name: {task: tally.as_dict(tallies["plain"][task]) for task, tally in by_task.items()}
        for name, by_task in tallies.items()
    }
    line = json.dumps({"results": results, **describe(vars(arguments))})
    if arguments.output is not None:
        arguments.output.write_text(line + "\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    main()
