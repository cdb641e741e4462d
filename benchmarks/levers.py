"""Four levers on the gain of speculation, each with its figures: one command, one table.

temperature  A less certain target agrees less with any drafter: alpha falls as entropy rises.
domain       Lookups live on repetition: what a drafter is worth depends on what is asked.
weights      A quantised target makes passes cheaper, and rows dearer relative to them; a quantised
             drafter is cheaper at nearly the same alpha.
batch        Rows of other requests use the room in a pass that drafts would have had for nothing.

Every row compares with plain decoding of the same prompts, in turns, so that a busy moment hits
both; compare within a row, and rows of one table only roughly on a busy machine. Prints markdown
and ends with one line of JSON.

    python benchmarks/levers.py temperature --drafter eagle2
    python benchmarks/levers.py weights --drafter prompt-lookup --cpu-time
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from clock import add_place, place
from environment import describe
from workloads import load

from slipstream import Engine, EngineConfig, SamplingParams
from slipstream.drafters.registry import DrafterContext, make_drafter
from slipstream.profiling.acceptance import Acceptance, by_domain, summarise
from slipstream.profiling.cost import measure_cycles
from slipstream.profiling.engines import beside
from slipstream.profiling.measuring import measure
from slipstream.profiling.prompts import LabelledPrompt, spread_over_domains
from slipstream.profiling.recording import record

Table = list[dict[str, str]]

PLACES = {
    "4 bit": EngineConfig(weights="q4"),
    "4 bit, int8 activations": EngineConfig(weights="q4", activations="int8"),
    "int8": EngineConfig(weights="int8"),
    "bf16": EngineConfig(weights="bf16"),
}


def temperature(arguments: argparse.Namespace) -> Table:
    """Acceptance and speedup by temperature."""
    engine = _engine(arguments)
    prompts = _prompts(arguments)
    rows = []
    for value in arguments.temperatures:
        params = replace(_params(arguments), temperature=value)
        acceptance = summarise(record(engine, prompts, params))
        row = {"T": f"{value:g}", "entropy (nats)": f"{acceptance.entropy.value:.2f}"}
        rows.append(row | _figures(acceptance) | _gain(engine, prompts, params, arguments))
    return rows


def domain(arguments: argparse.Namespace) -> Table:
    """The same by what was asked for."""
    engine = _engine(arguments)
    prompts, params = _prompts(arguments), _params(arguments)
    rows = []
    for name, records in by_domain(record(engine, prompts, params)).items():
        own = [prompt for prompt in prompts if prompt.domain == name]
        figures = _figures(summarise(records))
        rows.append({"task": name} | figures | _gain(engine, own, params, arguments))
    return rows


def weights(arguments: argparse.Namespace) -> Table:
    """A target in several precisions; then one in bf16 with draft models in several."""
    prompts, params = _prompts(arguments), _params(arguments)
    rows = []
    for name in PLACES:
        engine = _engine(arguments, PLACES[name])
        costs = measure_cycles(engine, context=128, rows=(1, 2, 4, 8), rounds=5)
        row = {
            "target": name,
            "drafter": arguments.drafter,
            "C(1), ms": f"{1e3 * costs.at(1):.1f}",
            "C(4)/C(1)": f"{costs.at(4) / costs.at(1):.2f}",
            "C(8)/C(1)": f"{costs.at(8) / costs.at(1):.2f}",
        }
        figures = _figures(summarise(record(engine, prompts, params)))
        rows.append(row | figures | _gain(engine, prompts, params, arguments))
    target = _engine(arguments, PLACES["bf16"])
    draft = arguments.draft_model or arguments.model
    for name, config in PLACES.items():
        context = DrafterContext(
            target=target.model,
            tokenizer=target.tokenizer,
            config=replace(config, threads=arguments.threads),
        )
        drafter = make_drafter(f"draft:{draft}", context)
        engine = beside(target, drafter=drafter, k=arguments.k)
        row = {"target": "bf16", "drafter": f"{draft} in {name}"}
        figures = _figures(summarise(record(engine, prompts, params)))
        rows.append(row | figures | _gain(engine, prompts, params, arguments))
    return rows


def batch(arguments: argparse.Namespace) -> Table:
    """Tokens per second of whole batches, by drafted depth."""
    engine = _engine(arguments)
    settings = {"plain": beside(engine, drafter="none", k=0)}
    for k in (*arguments.depths, "auto"):
        settings[f"k = {k}"] = beside(engine, drafter=engine.drafter, k=k)
    prompts = _prompts(arguments)
    params = replace(_params(arguments), ignore_eos=True)
    rows = []
    for size in arguments.batches:
        asked = [prompts[i % len(prompts)].prompt for i in range(size)]
        speeds: dict[str, list[float]] = {name: [] for name in settings}
        for turn in range(arguments.repeats):
            for name in np.roll(list(settings), turn).tolist():
                results = settings[name].generate(asked, params)
                took = max(result.stats.decode_seconds for result in results)
                speeds[name].append(sum(result.stats.emitted for result in results) / took)
        best = {name: max(values) for name, values in speeds.items()}
        row = {"batch": str(size), "plain, tokens/s": f"{best['plain']:.0f}"}
        gains = {name: f"{best[name] / best['plain']:.2f}×" for name in best if name != "plain"}
        rows.append(row | gains)
    return rows


def _engine(arguments: argparse.Namespace, config: EngineConfig | None = None) -> Engine:
    config = replace(config or place(arguments), threads=arguments.threads)
    engine = Engine(arguments.model, drafter=arguments.drafter, k=arguments.k, config=config)
    engine.generate("Hello", SamplingParams(max_tokens=4))  # what only the first passes cost
    return engine


def _prompts(arguments: argparse.Namespace) -> list[LabelledPrompt]:
    every = [LabelledPrompt(question.messages, question.task) for question in load(None)]
    return spread_over_domains(every, arguments.limit)


def _params(arguments: argparse.Namespace) -> SamplingParams:
    return SamplingParams(max_tokens=arguments.max_tokens, seed=1)


def _figures(acceptance: Acceptance) -> dict[str, str]:
    return {
        "has a draft": f"{acceptance.hit_rate.value:.0%}",
        "alpha": f"{acceptance.alpha.value:.2f}",
        "tokens/cycle": f"{acceptance.tokens_per_cycle.value:.2f}",
    }


def _gain(
    engine: Engine,
    prompts: Sequence[LabelledPrompt],
    params: SamplingParams,
    arguments: argparse.Namespace,
) -> dict[str, str]:
    (measured,) = measure(engine, [arguments.k], prompts, params, repeats=arguments.repeats)
    value, low, high = measured.speedup
    interval = "" if np.isnan(low) else f" [{low:.2f}, {high:.2f}]"
    return {f"speedup, k = {arguments.k}": f"{value:.2f}×{interval}"}


def markdown(rows: Table) -> list[str]:
    """A table as markdown; rows may lack columns."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    lines = [columns, ["---"] * len(columns), *([row.get(c, "") for c in columns] for row in rows)]
    return ["| " + " | ".join(cells) + " |" for cells in lines]


LEVERS = {f.__name__: f for f in (temperature, domain, weights, batch)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("lever", choices=list(LEVERS))
    parser.add_argument("--drafter", default="prompt-lookup", help="any that --drafter takes")
    parser.add_argument("--draft-model", help="whose weights are varied; default: the target's own")
    parser.add_argument("--k", type=int, default=3)
    parser.add_argument("--limit", type=int, default=12, help="prompts, from the tasks in turn")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 0.4, 0.8, 1.2])
    parser.add_argument("--batches", nargs="+", type=int, default=[1, 2, 4, 8, 16])
    parser.add_argument("--depths", nargs="+", type=int, default=[1, 3], help="of the batch sweep")
    add_place(parser)
    arguments = parser.parse_args()
    place(arguments)
    rows = LEVERS[arguments.lever](arguments)
    print("\n".join(markdown(rows)))
    print(json.dumps({"lever": arguments.lever, "rows": rows, **describe(vars(arguments))}))


if __name__ == "__main__":
    main()
