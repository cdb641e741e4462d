"""The promise, counted: how many texts differ from plain decoding, and from transformers.

For every question, plain decoding and every drafter x k x rule write the same request: greedy for
every exact rule, and coupled at a temperature. With a bit-exact target no text may differ. With
``--transformers``, the greedy text of float32 weights is also compared with transformers'
``generate`` on the same file and dtype; where two float32 implementations part, the margin between
the two best logits at that token is printed, which rounding explains if it is tiny.

    python benchmarks/same_tokens.py
    python benchmarks/same_tokens.py --questions questions.jsonl --limit 40
    python benchmarks/same_tokens.py --transformers --limit 20
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from environment import describe
from workloads import Question, load

from slipstream import Engine, EngineConfig, SamplingParams
from slipstream.models.loader import locate

EXACT_RULES = ("rejection", "block", "coupled", "recursive", "greedy_siblings")


def against_plain(
    plain: Engine,
    questions: list[Question],
    depths: list[int],
    rules: list[str],
    max_tokens: int,
) -> dict[str, dict[str, int]]:
    """mode -> how many texts were compared and how many differed."""
    greedy = SamplingParams(max_tokens=max_tokens)
    sampled = SamplingParams(max_tokens=max_tokens, temperature=0.8, seed=7)
    modes = [("greedy", greedy, rule) for rule in rules]
    modes.append(("T = 0.8", sampled, "coupled"))
    counts: dict[str, dict[str, int]] = {}
    expected: dict[tuple[str, str], tuple[int, ...]] = {}
    for name, params, rule in modes:
        count = counts.setdefault(f"{name}, {rule}", {"compared": 0, "different": 0})
        for k in depths:
            engine = Engine(
                plain.model, tokenizer=plain.tokenizer, drafter="prompt-lookup", k=k, verify=rule
            )
            for question in questions:
                key = (name, question.text)
                if key not in expected:
                    expected[key] = plain.generate(question.messages, params).token_ids
                text = engine.generate(question.messages, params).token_ids
                count["compared"] += 1
                count["different"] += text != expected[key]
    return counts


def against_transformers(
    model: str, engine: Engine, questions: list[Question], max_tokens: int
) -> dict[str, Any]:
    """Greedy texts against transformers' ``generate`` on the same GGUF file in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    path = locate(model)
    theirs = AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32
    ).eval()
    different = []
    for question in questions:
        prompt = engine.encode(question.messages)
        ours = engine.generate(prompt, SamplingParams(max_tokens=max_tokens)).token_ids
        with torch.inference_mode():
            output = theirs.generate(
                torch.tensor([prompt]),
                max_new_tokens=max_tokens,
                do_sample=False,
                eos_token_id=sorted(engine.tokenizer.eos_token_ids),
                pad_token_id=0,
            )[0, len(prompt) :].tolist()
            if tuple(output) != ours:
                same = [a == b for a, b in zip(output, ours, strict=False)]
                at = [*same, False].index(False)
                logits = theirs(torch.tensor([prompt + output[:at]])).logits[0, -1]
                best = torch.topk(logits, 2).values
                different.append({"token": at, "margin": float(best[0] - best[1])})
    return {"compared": len(questions), "different": different}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--limit", type=int)
    parser.add_argument("--max-tokens", type=int, default=64)
    parser.add_argument("--k", type=int, nargs="+", default=list(range(9)))
    parser.add_argument("--rules", nargs="+", default=list(EXACT_RULES), help="for greedy texts")
    parser.add_argument("--weights", default="auto")
    parser.add_argument("--activations", default="bf16")
    parser.add_argument("--transformers", action="store_true")
    arguments = parser.parse_args()

    questions = load(arguments.questions, arguments.limit)
    weights = "f32" if arguments.transformers else arguments.weights
    config = EngineConfig(weights=weights, activations=arguments.activations)
    plain = Engine(arguments.model, drafter="none", k=0, config=config)
    results: dict[str, Any]
    if arguments.transformers:
        results = {
            "transformers": against_transformers(
                arguments.model, plain, questions, arguments.max_tokens
            )
        }
        found = results["transformers"]
        print(f"{len(found['different'])} of {found['compared']} texts differ from transformers'")
        for entry in found["different"]:
            print(f"  from token {entry['token']}, margin {entry['margin']:.2e}")
    else:
        results = against_plain(
            plain, questions, arguments.k, arguments.rules, arguments.max_tokens
        )
        for mode, count in results.items():
            print(f"{mode:32} {count['different']} of {count['compared']} texts differ")
    print(json.dumps({"results": results, **describe(vars(arguments))}))


if __name__ == "__main__":
    main()
