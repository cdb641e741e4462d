"""From a profile to settings: Slipstream's own, and the like for other engines.

Other engines draft from their own code on their own kernels: a depth that is right here is where to
begin there, no more, so each of their settings comes with the figures that led to it and says so.
Flags are those of vLLM's ``--speculative-config``, SGLang's ``--speculative-*`` and llama.cpp's
``--spec-*``; ``docs/tuning.md`` says which versions took them. A trained head is a file of its own
format in every engine, so where one is needed there is a placeholder, not our checkpoint's path.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import isnan
from typing import Any

from slipstream.config import EngineConfig, SpeculationConfig
from slipstream.engine.settings import Settings
from slipstream.profiling.findings import Profile

A_HEAD = "PATH-OF-ITS-OWN-{}-CHECKPOINT"

NOT_MEASURED = (
    "depth from Slipstream's measurement of acceptance; cost was measured here, not there: "
    "verify with that engine's own benchmark"
)


def settings_for(found: Profile, speculation: SpeculationConfig, engine: EngineConfig) -> Settings:
    """The settings of the best drafter: ``k = auto``, with measured costs, or plain decoding.

    Args:
        found: the measurements.
        speculation: what else they were made with, such as the width of trees.
        engine: where the model ran.
    """
    best = found.best
    pays = best.curve.best > 0
    return Settings(
        model=found.model,
        speculation=replace(
            speculation,
            drafter=best.drafter if pays else "none",
            k="auto" if pays else 0,
            verify=found.verify,
        ),
        engine=engine,
        costs=found.costs_for(best) if pays else None,
    )


def reasons(found: Profile) -> dict[str, Any]:
    """The figures behind the settings."""
    best = found.best
    speedup = best.curve.speedups[best.curve.best]
    return {
        "drafter": best.drafter,
        "temperature": best.temperature,
        "prompts": best.overall.prompts,
        "alpha": _number(best.overall.alpha.value),
        "predicted_speedup": _number(speedup.value),
        "predicted_interval": None if isnan(speedup.low) else [speedup.low, speedup.high],
        "best_fixed_k": best.curve.best,
        "tokens_per_cycle": best.curve.tokens[best.curve.best],
        "dont_speculate_from_batch": best.quit_batch,
        "checks": [check.as_dict() for check in found.checks],
    }


def other_engines(found: Profile) -> dict[str, Any]:
    """Equivalent settings by engine, for the best drafter that it has, if it pays."""
    if found.best.curve.best == 0:
        off = "speculation isn't predicted to pay on these prompts: leave it off"
        return {"vllm": {"why": off}, "sglang": {"why": off}, "llama.cpp": {"why": off}}
    return {
        "vllm": _settings("speculative_config", _vllm, found),
        "sglang": _settings("flags", _sglang, found),
        "llama.cpp": _settings("flags", _llama_cpp, found),
    }


def _settings(name: str, translate: Callable[[str, str, int], Any], found: Profile) -> Any:
    """What a translation makes of the best drafter that it knows, with the figures behind it."""
    for drafter in found.ranking:
        kind, _, argument = drafter.drafter.partition(":")
        k = drafter.curve.best
        settings = translate(kind, argument, k) if k else None
        if settings is None:
            continue
        why = (
            f"k = {k}: alpha {drafter.overall.alpha.value:.2f}, "
            f"{drafter.curve.tokens[k]:.2f} tokens per cycle on {drafter.overall.prompts} prompts"
        )
        if drafter is not found.best:
            why = f"{drafter.drafter}, because it has nothing like {found.best.drafter}; {why}"
        return {name: settings, "why": why, "beware": NOT_MEASURED}
    return {"why": f"it has nothing like {found.best.drafter}"}


def _vllm(kind: str, path: str, k: int) -> dict[str, Any] | None:
    config: dict[str, Any]
    if kind == "prompt-lookup":
        config = {"method": "ngram", "prompt_lookup_min": int(path or 1), "prompt_lookup_max": 4}
    elif kind == "draft":
        config = {"method": "draft_model", "model": path}
    elif kind in ("eagle", "eagle2"):
        config = {"method": "eagle", "model": A_HEAD.format("EAGLE")}
    elif kind == "medusa":
        config = {"method": "medusa", "model": A_HEAD.format("MEDUSA")}
    else:
        return None
    config["num_speculative_tokens"] = k
    return config


def _sglang(kind: str, path: str, k: int) -> list[str] | None:
    if kind == "prompt-lookup":
        chain = ["--speculative-ngram-max-bfs-breadth", "1"]  # it would draft a tree
        drafted = ["--speculative-num-draft-tokens", str(k + 1)]
        return ["--speculative-algorithm", "NGRAM", *drafted, *chain]
    if kind == "draft":
        algorithm = "STANDALONE"
    elif kind in ("eagle", "eagle2"):
        algorithm, path = "EAGLE", A_HEAD.format("EAGLE")
    else:
        return None
    return [
        "--speculative-algorithm",
        algorithm,
        "--speculative-draft-model-path",
        path,
        "--speculative-num-steps",
        str(k),
        "--speculative-eagle-topk",
        "1",
        "--speculative-num-draft-tokens",
        str(k + 1),
    ]


def _llama_cpp(kind: str, path: str, k: int) -> list[str] | None:
    if kind == "prompt-lookup":
        # It matches n-grams of one length; ours are of 1 to 4 tokens, the longest that match.
        lengths = ["--spec-ngram-simple-size-n", "3", "--spec-ngram-simple-size-m", str(k)]
        return ["--spec-type", "ngram-simple", *lengths]
    if kind == "draft":
        draft = ["--spec-draft-model", path, "--spec-draft-n-max", str(k)]
        return ["--spec-type", "draft-simple", *draft]
    return None


def _number(value: float) -> float | None:
    return None if isnan(value) else value
