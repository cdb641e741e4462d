"""What int8 activations cost in quality: KL to float32 computing, and perplexity, on a text.

The same weights (as the file has them, or as ``--weights`` says) run in float32, with bf16 and
with int8 activations. KL is the mean over tokens of KL(float32, other), in nats; ``same best`` is
how often the most likely token is the same. Perplexity is of the text itself.

    python benchmarks/activation_quality.py --text README.md
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from environment import describe

from slipstream import kernels
from slipstream.config import EngineConfig
from slipstream.models.base import Rows, TargetModel
from slipstream.models.loader import open_checkpoint
from slipstream.models.native import NativeModel
from slipstream.models.reference import ReferenceModel

WINDOW = 256


def log_probs(model: TargetModel, tokens: list[int]) -> np.ndarray:
    """(T, V) log-probabilities after each token, float32."""
    sequence = model.open()
    x = model.forward(Rows.chain(sequence, tokens)).logits
    model.close(sequence)
    x = x - x.max(-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)), np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--weights", default="auto", choices=["auto", "int8", "q4"])
    parser.add_argument("--threads", type=int)
    arguments = parser.parse_args()

    checkpoint = open_checkpoint(arguments.model)
    text = checkpoint.tokenizer.encode(arguments.text.read_text(encoding="utf-8"))
    text = text[: arguments.tokens]
    windows = [text[start : start + WINDOW] for start in range(0, len(text), WINDOW)]
    models = {
        name: NativeModel(
            checkpoint,
            EngineConfig(weights=arguments.weights, activations=name, threads=arguments.threads),
        )
        for name in ("bf16", "int8")
    }
    # The file's own weights in float32 are the yardstick; for others there is none but bf16.
    yardstick = ReferenceModel(checkpoint) if arguments.weights == "auto" else models["bf16"]

    sums = {name: np.zeros(3) for name in ("yardstick", *models)}
    count = 0
    for window in windows:
        targets = np.array(window[1:])
        rows = np.arange(len(targets))
        base = log_probs(yardstick, window)
        for name in sums:
            other = base if name == "yardstick" else log_probs(models[name], window)
            p = np.exp(base[:-1].astype(np.float64))
            sums[name] += [
                -other[rows, targets].sum(),
                (p * (base[:-1] - other[:-1])).sum(),
                (base[:-1].argmax(-1) == other[:-1].argmax(-1)).sum(),
            ]
        count += len(targets)
    result = {
        name: {
            "perplexity": float(np.exp(values[0] / count)),
            "kl": float(values[1] / count),
            "same_best": float(values[2] / count),
        }
        for name, values in sums.items()
    }
    print(f"{kernels.isa()}, {count} tokens of {arguments.text.name}, weights {arguments.weights}")
    for name, values in result.items():
        print(
            f"{name:10} perplexity {values['perplexity']:8.3f}   KL {values['kl']:.2e}   "
            f"same best {values['same_best']:.2%}"
        )
    print(json.dumps({"quality": result} | describe(vars(arguments))))


if __name__ == "__main__":
    main()
