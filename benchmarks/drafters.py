"""Which drafter, tree and rule is fastest: tokens per pass, and tokens per second.

The physics: a cycle of N drafted tokens costs C(N + 1) for the target's pass and what the
drafter's own passes take, and brings the *acceptance length*, tokens per pass. The latter depends
on drafter, shape, rule and temperature and on nothing of the machine, so a few dozen prompts
measure it well; the former is the machine's. Both come out of the same run: every setting answers
every prompt, settings take turns on a prompt between two plain decodings of it, and intervals
(95 %) are bootstrapped over prompts, a setting's and plain decoding's together.

At temperature 0 the exact rules all accept the same tokens of the same tree, so one of them stands
for all. Texts must be plain decoding's there, and under ``coupled`` at any temperature; one that
is not makes the run fail, where the backend promises equal bits. Prints Markdown, ends with a line
of JSON.

    python benchmarks/drafters.py --drafter eagle:PATH --drafter medusa:PATH --drafter draft:PATH
    python benchmarks/drafters.py --questions question.jsonl --limit 26 --json table.json
    python benchmarks/drafters.py --drafter eagle:PATH --depths --nodes 12 24 --widths 4 8
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from clock import add_place, place
from environment import describe
from workloads import Question, load

from slipstream import Engine, Generation, SamplingParams
from slipstream.drafters.checkpoint_config import TargetIdentity
from slipstream.drafters.learned import shipped_for
from slipstream.drafters.registry import DrafterContext, make_drafter
from slipstream.profiling.engines import beside
from slipstream.verification.registry import RULES, get_rule

CHAIN_RULES = ("coupled", "rejection", "block")
TREE_RULES = ("coupled", "recursive", "greedy_siblings", "typical")
RESAMPLES = 1000


@dataclass(frozen=True)
class Setting:
    """One row of the table."""

    drafter: str
    shape: str
    rule: str
    engine: Engine

    @property
    def name(self) -> str:
        lossy = "" if self.engine.rule.exact else " (LOSSY)"
        return f"{self.drafter}, {self.shape}, {self.rule}{lossy}"

    def must_equal_plain(self, temperature: float) -> bool:
        same_tokens = temperature == 0.0 or self.rule == "coupled"
        promised = self.engine.rule.exact and self.engine.model.capabilities.bit_exact
        return same_tokens and promised


@dataclass
class Tally:
    """What one setting did, by prompt."""

    tokens: list[int] = field(default_factory=list)
    cycles: list[int] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    drafting: list[float] = field(default_factory=list)
    alphas: list[float] = field(default_factory=list)
    unlike_plain: int = 0

    def add(self, results: Sequence[Generation], plain: Generation) -> None:
        """Take a prompt in; several results are repetitions of the same."""
        stats = [result.stats for result in results]
        self.tokens.append(sum(s.emitted for s in stats))
        self.cycles.append(sum(s.cycles for s in stats))
        self.seconds.append(sum(s.decode_seconds for s in stats))
        self.drafting.append(sum(s.draft_seconds for s in stats))
        self.alphas += [alpha for s in stats for alpha in s.alphas]
        self.unlike_plain += results[0].token_ids != plain.token_ids

    def length(self) -> tuple[float, float, float]:
        """Tokens per pass, with its interval."""
        return _ratio(self.tokens, self.cycles)

    def speedup(self, plain: Tally) -> tuple[float, float, float]:
        """Tokens per second by plain decoding's, with its interval."""
        return _ratio(self.tokens, self.seconds, plain.seconds, plain.tokens)

    def as_dict(self, plain: Tally) -> dict[str, Any]:
        return {
            "tokens_per_pass": self.length(),
            "speedup": self.speedup(plain),
            "tokens_per_second": sum(self.tokens) / sum(self.seconds),
            "alpha": float(np.mean(self.alphas)) if self.alphas else None,
            "draft_share": sum(self.drafting) / sum(self.seconds),
            "texts_unlike_plain": self.unlike_plain,
        }


def _ratio(*columns: Sequence[float]) -> tuple[float, float, float]:
    """(a / b) or (a / b) x (c / d) of sums over prompts, with the bounds of 95 %."""
    values = np.array(columns, np.float64)
    picks = np.random.default_rng(0).integers(0, values.shape[1], (RESAMPLES, values.shape[1]))
    sums = np.concatenate([values.sum(axis=1)[:, None], values[:, picks].sum(axis=2)], axis=1)
    ratios = sums[0] / sums[1] * (sums[2] / sums[3] if len(sums) == 4 else 1.0)
    low, high = np.quantile(ratios[1:], (0.025, 0.975))
    return float(ratios[0]), float(low), float(high)


def settings(plain: Engine, arguments: argparse.Namespace) -> Iterator[Setting]:
    """Every drafter with the shapes that suit it and the rules that judge those."""
    context = {"target": plain.model, "tokenizer": plain.tokenizer, "config": plain.config}
    for given in arguments.drafter or defaults(plain):
        kind, _, path = given.partition(":")
        names = [kind, "eagle2"] if kind == "eagle" else [kind]
        for name in names:
            spec = f"{name}:{path}" if path else name
            for width in arguments.widths if name == "eagle2" else [None]:
                allowed = arguments.allow_other_target
                drafter = make_drafter(
                    spec, DrafterContext(**context, tree_width=width, allow_other_target=allowed)
                )
                for shape, k, nodes in shapes(name, width, arguments):
                    rules = CHAIN_RULES if nodes is not None and nodes <= k else TREE_RULES
                    for rule in arguments.rules or rules:
                        if nodes is not None and nodes > k and not get_rule(rule).trees:
                            continue
                        tried = beside(plain, drafter=drafter, k=k, nodes=nodes, verify=rule)
                        yield Setting(name, shape, rule, tried)


def defaults(plain: Engine) -> list[str]:
    """What ships for the target, and prompt lookup."""
    identity = TargetIdentity.of(plain.model.info, plain.tokenizer)
    shipped = [f"{config.architecture}:{name}" for name, config in shipped_for(identity).items()]
    return ["prompt-lookup", *shipped]


def shapes(
    drafter: str, width: int | None, arguments: argparse.Namespace
) -> Iterator[tuple[str, Any, int | None]]:
    """(words, k, nodes) of the shapes that a drafter is tried with."""
    if drafter != "eagle2":
        for k in arguments.depths:
            yield f"chain {k}", k, k
    if drafter in ("eagle", "eagle2", "medusa"):
        kind = f"EAGLE-2 tree, width {width}" if drafter == "eagle2" else "static tree"
        for nodes in arguments.nodes:
            yield f"{kind}, {nodes} nodes", arguments.tree_depth, nodes
    if arguments.auto:
        yield "auto", "auto", None


def measure(
    plain: Engine,
    tried: Sequence[Setting],
    questions: Sequence[Question],
    params: SamplingParams,
) -> tuple[Tally, list[Tally]]:
    """Plain decoding's tally and each setting's."""
    reference, tallies = Tally(), [Tally() for _ in tried]
    for warm in (plain, *(setting.engine for setting in tried)):
        warm.generate(questions[0].messages, SamplingParams(max_tokens=4))
    for done, question in enumerate(questions, start=1):
        before = plain.generate(question.messages, params)
        for setting, tally in zip(tried, tallies, strict=True):
            tally.add([setting.engine.generate(question.messages, params)], before)
        after = plain.generate(question.messages, params)
        reference.add([before, after], before)
        print(f"T = {params.temperature:g}: {done}/{len(questions)}", end="\r", file=sys.stderr)
    return reference, tallies


def print_table(
    temperature: float, plain: Tally, tried: Sequence[Setting], tallies: Sequence[Tally]
) -> None:
    speed = sum(plain.tokens) / sum(plain.seconds)
    print(f"\n### T = {temperature:g}; plain decoding: {speed:.0f} tokens/s\n")
    rule = "rule (every exact one alike)" if temperature == 0.0 else "rule"
    print(f"| drafter | shape | {rule} | tokens per pass | alpha | speedup | drafting |")
    print("|---|---|---|---|---|---|---|")
    for setting, tally in zip(tried, tallies, strict=True):
        length, fast = tally.length(), tally.speedup(plain)
        share = 100 * sum(tally.drafting) / sum(tally.seconds)
        name = setting.rule if setting.engine.rule.exact else f"{setting.rule}, **LOSSY**"
        # Of a tree it would be the alpha of the chain inside it.
        alpha = (
            f"{np.mean(tally.alphas):.2f}" if tally.alphas and "tree" not in setting.shape else ""
        )
        print(
            f"| {setting.drafter} | {setting.shape} | {name} "
            f"| {length[0]:.2f} ({length[1]:.2f} to {length[2]:.2f}) | {alpha} "
            f"| {fast[0]:.2f}× ({fast[1]:.2f} to {fast[2]:.2f}) | {share:.0f} % |"
        )
    exact = [i for i, setting in enumerate(tried) if setting.engine.rule.exact]
    if exact:
        best = max(exact, key=lambda i: tallies[i].speedup(plain)[0])
        print(f"\nFastest exact at T = {temperature:g}: {tried[best].name}.")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add_place(parser)
    parser.add_argument("--drafter", action="append", help="name or name:PATH; repeatable")
    parser.add_argument("--depths", nargs="*", type=int, default=[1, 2, 3, 4, 5, 6], help="chains")
    parser.add_argument("--nodes", nargs="*", type=int, default=[8, 16, 32], help="trees")
    parser.add_argument("--tree-depth", type=int, default=5)
    parser.add_argument("--widths", nargs="+", type=int, default=[8], help="of EAGLE-2 trees")
    parser.add_argument("--auto", action="store_true", help="also k = auto")
    parser.add_argument("--rules", nargs="+", choices=sorted(RULES), help="default: all that fit")
    parser.add_argument("--temperatures", nargs="+", type=float, default=[0.0, 1.0])
    parser.add_argument("--questions", type=Path, help="JSON lines; default: prompts of our own")
    parser.add_argument("--limit", type=int, default=12, help="questions, spread over the file")
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--allow-other-target", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the JSON here")
    arguments = parser.parse_args()

    plain = Engine(arguments.model, drafter="none", k=0, config=place(arguments))
    every = list(settings(plain, arguments))
    questions = load(arguments.questions, arguments.limit)
    results: dict[str, Any] = {}
    broken: list[str] = []
    for temperature in arguments.temperatures:
        tried = every if temperature else one_rule_a_shape(every)
        params = SamplingParams(
            max_tokens=arguments.max_tokens, temperature=temperature, seed=arguments.seed
        )
        reference, tallies = measure(plain, tried, questions, params)
        print_table(temperature, reference, tried, tallies)
        results[f"{temperature:g}"] = {
            setting.name: tally.as_dict(reference)
            for setting, tally in zip(tried, tallies, strict=True)
        }
        broken += [
            f"{setting.name} at T = {temperature:g}"
            for setting, tally in zip(tried, tallies, strict=True)
            if tally.unlike_plain and setting.must_equal_plain(temperature)
        ]
    print()
    line = json.dumps({"results": results, "unlike_plain": broken, **describe(vars(arguments))})
    if arguments.json is not None:
        arguments.json.write_text(line + "\n", encoding="utf-8")
    print(line)
    if broken:
        print("texts unlike plain decoding's: " + "; ".join(broken), file=sys.stderr)
    return bool(broken)


def one_rule_a_shape(every: Sequence[Setting]) -> list[Setting]:
    """The first exact rule of every drafter and shape; all of them if none is exact."""
    first: dict[tuple[int, str, str], Setting] = {}
    for setting in every:
        if setting.engine.rule.exact:
            key = (id(setting.engine.drafter), setting.drafter, setting.shape)
            first.setdefault(key, setting)
    return list(first.values()) or list(every)


if __name__ == "__main__":
    sys.exit(main())
