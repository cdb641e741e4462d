"""Acceptance from recorded traces (``slipstream generate --trace --json``), without any model.

A trace has every cycle's draft, what became of it, and the alphas that the rule saw. Where those
are missing (a trace of an older version, or by hand), the target's p and the drafter's q of every
drafted token whose parent was reached stand in: tokens that were chosen without chance have
alpha = their summed p, and for a sampled token x, min(1, p(x)/q(x)) has the expectation sum over v
of min(p, q) (2211.17192), an unbiased estimate that is noisier than the sum itself. Knows no cost:
a trace has the times of its cycles in the mean, not by rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from pathlib import Path
from typing import Any, Final, TypeAlias

from slipstream.errors import InvalidInput
from slipstream.profiling.acceptance import Acceptance, by_domain, summarise
from slipstream.profiling.prompts import domain_of, json_entries, read_text
from slipstream.profiling.recording import CycleRecord, PromptRecord, entropy

HOW: Final = "slipstream generate --trace --json PROMPT"
ROOT: Final = -1

_Setting: TypeAlias = tuple[str, str, str, float | None]
"""Model, drafter, rule and temperature."""


@dataclass(frozen=True, kw_only=True)
class TracedAcceptance:
    """What traces of one model, drafter, rule and temperature say.

    Args:
        model, drafter, verify: as recorded.
        temperature: the same; None where a trace doesn't say.
        overall: acceptance in all of them.
        domains: by label, if the traces carry one.
        sampled: whether alphas of sampled tokens are missing, so that alpha is an estimate.
    """

    model: str
    drafter: str
    verify: str
    temperature: float | None
    overall: Acceptance
    domains: dict[str, Acceptance]
    sampled: bool

    @property
    def setting(self) -> str:
        """Drafter, rule and temperature, for people."""
        known = [] if self.temperature is None else [f"T = {self.temperature:g}"]
        return ", ".join([self.drafter, self.verify, *known])

    @property
    def notes(self) -> list[str]:
        """What couldn't be told or only roughly, and what to record to be told."""
        notes = []
        if not self.overall.hit_rate.value:
            notes.append("nothing was drafted: record with a drafter and k > 0")
        if self.sampled:
            notes.append(
                "alpha and D_TV are estimated from p/q of the sampled tokens: right on average, "
                "noisy with few cycles"
            )
        if isnan(self.overall.entropy.value):
            notes.append("no entropy: record with --logprobs 20")
        if self.overall.prompts < 2:
            notes.append("one prompt has no interval: append further traces, one a line")
        return notes

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "model": self.model,
            "drafter": self.drafter,
            "verify": self.verify,
            "temperature": self.temperature,
            "acceptance": self.overall.as_dict(),
            "acceptance_by_domain": {d: a.as_dict() for d, a in self.domains.items()},
            "alpha_is_estimated": self.sampled,
            "notes": self.notes,
        }


def read_traces(path: Path) -> list[TracedAcceptance]:
    """Acceptance by model, drafter, rule and temperature, in the order in which the file has them.

    Raises:
        InvalidInput: no trace in it, or one that lacks something; says which, and how to record.
        OSError: it can't be opened.
    """
    groups: dict[_Setting, list[PromptRecord]] = {}
    sampled: set[_Setting] = set()
    for place, entry in json_entries(read_text(path), str(path)):
        cycles = _cycles(place, entry)
        if not cycles:
            continue  # the request failed before its first token
        model, verify = (_text(place, entry, name) for name in ("model", "verify"))
        setting = (model, _drafter(place, entry), verify, _temperature(place, entry))
        try:
            groups.setdefault(setting, []).append(_record(entry, cycles))
            if any(map(_is_estimated, cycles)):
                sampled.add(setting)
        except (KeyError, TypeError, ValueError, IndexError, ZeroDivisionError) as error:
            what = f"{type(error).__name__}: {error}"
            raise InvalidInput(
                f"{place} has a damaged trace ({what}); record it again: {HOW}"
            ) from None
    if not groups:
        raise InvalidInput(f"{path} holds no trace; record one: {HOW}")
    return [
        TracedAcceptance(
            model=setting[0],
            drafter=setting[1],
            verify=setting[2],
            temperature=setting[3],
            overall=summarise(records),
            domains={domain: summarise(some) for domain, some in by_domain(records).items()},
            sampled=setting in sampled,
        )
        for setting, records in groups.items()
    ]


def _cycles(place: str, entry: Any) -> list[Any]:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("trace"), list):
        raise InvalidInput(f"{place} has no trace; record one: {HOW}")
    return list(entry["trace"])


def _text(place: str, entry: Mapping[str, Any], name: str) -> str:
    if not isinstance(entry.get(name), str):
        raise InvalidInput(f"{place} doesn't say which {name} it is of; record it again: {HOW}")
    return str(entry[name])


def _drafter(place: str, entry: Mapping[str, Any]) -> str:
    stats = entry.get("stats")
    return _text(place, stats if isinstance(stats, Mapping) else {}, "drafter")


def _temperature(place: str, entry: Mapping[str, Any]) -> float | None:
    value = entry.get("temperature")
    if value is None or (isinstance(value, (int, float)) and not isinstance(value, bool)):
        return value
    raise InvalidInput(f"{place} has temperature {value!r}, not a number; record it again: {HOW}")


def _is_estimated(cycle: Mapping[str, Any]) -> bool:
    return "alphas" not in cycle and any(node["drawn"] != "chosen" for node in cycle["nodes"])


def _record(entry: Mapping[str, Any], cycles: Sequence[Mapping[str, Any]]) -> PromptRecord:
    kept = [_cycle(cycle) for cycle in cycles]
    logprobs = entry.get("logprobs") or ()
    entropies = [entropy([top["logprob"] for top in e["top"]]) for e in logprobs if e["top"]]
    return PromptRecord(
        domain=domain_of(entry),
        prompt_tokens=int(cycles[0]["start"]),
        tokens=sum(cycle.emitted for cycle in kept),
        entropy=sum(entropies) / len(entropies) if entropies else float("nan"),
        cycles=tuple(kept),
    )


def _cycle(cycle: Mapping[str, Any]) -> CycleRecord:
    nodes, path, kept = cycle["nodes"], cycle["path"], int(cycle["kept"])
    children: dict[int, list[Mapping[str, Any]]] = {}
    for node in nodes:
        children.setdefault(node["parent"], []).append(node)
    if "alphas" in cycle:
        alphas = tuple(float(alpha) for alpha in cycle["alphas"][:kept])
    else:
        reached = [ROOT, *path][:kept]
        alphas = tuple(_alpha(children[parent]) for parent in reached if parent in children)
    return CycleRecord(
        drafted=len(nodes),
        depth=max((int(node["depth"]) for node in nodes), default=0),
        alphas=alphas,
        accepted=len(path),
        emitted=kept,
    )


def _alpha(siblings: Sequence[Mapping[str, Any]]) -> float:
    """Of drafted children that were reached, by how they were drawn (see the module's words)."""
    drawn = siblings[0]["drawn"]
    if drawn == "chosen":
        return min(1.0, sum(float(child["p"]) for child in siblings))
    # In a set of samples the first is a plain sample of q; behind chosen ones the last is.
    sample = siblings[-1] if drawn == "top-then-sampled" else siblings[0]
    return min(1.0, float(sample["p"]) / float(sample["q"]))
