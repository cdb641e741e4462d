"""Does the predicted speedup come true? Predicted beside measured, over many settings.

`slipstream profile` predicts every drafter, temperature, task and k from one recorded run with deep
drafts and from cycles timed by their rows; then each setting is run in turns with plain decoding.
Prediction and measurement share the model and the prompts and no timing. What the prediction can't
foresee is a draft's luck depending on where its cycle begins, and what the machine does meanwhile.

Prints a table, the median and the worst error, and one line of JSON.

    python benchmarks/prediction.py
    python benchmarks/prediction.py --drafters prompt-lookup eagle2 --depths 2 5 --output out.json
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from clock import add_place, place
from environment import describe
from workloads import load

from slipstream import Engine, SamplingParams
from slipstream.profiling.engines import beside
from slipstream.profiling.findings import DrafterProfile
from slipstream.profiling.measuring import measure
from slipstream.profiling.profile import DEEPEST, profile
from slipstream.profiling.prompts import LabelledPrompt, spread_over_domains


@dataclass(frozen=True, kw_only=True)
class Setting:
    """A prediction and what became of it."""

    drafter: str
    temperature: float
    task: str
    k: int
    predicted: float
    measured: float
    low: float
    high: float

    @property
    def error(self) -> float:
        """Relative to what was measured."""
        return self.predicted / self.measured - 1

    def as_dict(self) -> dict[str, object]:
        """Plain values for JSON; an unknown interval is null."""
        unknown = not np.isfinite(self.low)
        values = vars(self) | (dict.fromkeys(("low", "high")) if unknown else {})
        return {**values, "error": self.error}

    def cells(self) -> list[str]:
        known = np.isfinite(self.low)  # one prompt has no interval
        interval = f" [{self.low:.2f}, {self.high:.2f}]" if known else ""
        return [
            self.drafter,
            f"{self.temperature:g}",
            self.task,
            str(self.k),
            f"{self.predicted:.2f}×",
            f"{self.measured:.2f}×{interval}",
            f"{self.error:+.1%}",
        ]


def settings(
    engine: Engine,
    entry: DrafterProfile,
    prompts: Sequence[LabelledPrompt],
    depths: Sequence[int],
    arguments: argparse.Namespace,
) -> list[Setting]:
    """Measure what was predicted of a drafter at a temperature, task by task."""
    drafting = beside(engine, drafter=entry.source, k=DEEPEST)
    params = SamplingParams(temperature=entry.temperature, max_tokens=arguments.max_tokens)
    found = []
    for task, curve in entry.domain_curves.items():
        own = [prompt for prompt in prompts if prompt.domain == task]
        notice("measuring", f"{entry.drafter}, T = {entry.temperature:g}, {task}")
        for measured in measure(drafting, depths, own, params, repeats=arguments.repeats):
            assert measured.k != "auto"
            value, low, high = measured.speedup
            setting = Setting(
                drafter=entry.drafter,
                temperature=entry.temperature,
                task=task,
                k=measured.k,
                predicted=curve.speedups[measured.k].value,
                measured=value,
                low=low,
                high=high,
            )
            found.append(setting)
    return found


def notice(*words: object) -> None:
    print(*words, "…", file=sys.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--drafters", nargs="+", default=["prompt-lookup"])
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.8])
    parser.add_argument("--depths", nargs="+", type=int, default=[2, 5])
    parser.add_argument("--questions", type=Path, help="JSON lines; default: prompts of our own")
    parser.add_argument("--limit", type=int, default=18, help="prompts, from the tasks in turn")
    parser.add_argument("--max-tokens", type=int, default=96)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--output", type=Path, help="also write the JSON here")
    add_place(parser)
    arguments = parser.parse_args()
    config = place(arguments)

    engine = Engine(arguments.model, drafter="none", k=0, config=config)
    every = [LabelledPrompt(q.messages, q.task) for q in load(arguments.questions)]
    prompts = spread_over_domains(every, arguments.limit)
    drafters = [beside(engine, drafter=spec, k=DEEPEST).drafter for spec in arguments.drafters]
    profiled = profile(
        engine,
        drafters,
        prompts,
        model=arguments.model,
        temperatures=arguments.temperatures,
        max_tokens=arguments.max_tokens,
        fresh=True,
        notice=lambda what, done, total: notice(what) if done == 0 else None,
    )
    found = [
        setting
        for entry in profiled.drafters
        for setting in settings(engine, entry, prompts, arguments.depths, arguments)
    ]
    header = ["drafter", "T", "task", "k", "predicted", "measured", "off by"]
    for cells in (header, ["---"] * len(header), *(setting.cells() for setting in found)):
        print("| " + " | ".join(cells) + " |")
    errors = np.abs([setting.error for setting in found])
    median, worst = float(np.median(errors)), float(errors.max())
    print(f"\n{len(found)} settings: median error {median:.1%}, worst {worst:.1%}")
    line = json.dumps(
        {
            "settings": [setting.as_dict() for setting in found],
            "median_error": median,
            "worst_error": worst,
            **describe(vars(arguments)),
        }
    )
    if arguments.output is not None:
        arguments.output.write_text(line + "\n", encoding="utf-8")
    print(line)


if __name__ == "__main__":
    main()
