"""What a generation gained: measured, beside what the theory predicts from its alpha and costs.

The prediction uses expected tokens per cycle from probabilities, 1 + (sum of alphas) / cycles,
never the coin flips that the measurement itself consists of. Without a plain run to compare with,
a pass is taken to cost the same for any number of rows; with one, passes cost what they took.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from slipstream.theory.speedup import measured_speedup

if TYPE_CHECKING:
    from slipstream.engine.generation import Generation

Span = tuple[str, str]
"""A stretch of text and its rich style."""


@dataclass(frozen=True, kw_only=True)
class Prediction:
    """The theory's word on a run.

    Args:
        tokens: expected tokens per cycle.
        c: time of drafting one token over the time of a target pass; None if none was drafted.
        speedup: over plain decoding.
        assumes: which pass cost went in, ``flat`` or ``measured``.
    """

    tokens: float
    c: float | None
    speedup: float
    assumes: str


@dataclass(frozen=True, kw_only=True)
class Report:
    """A finished generation, and the plain one beside it if there is one.

    Args:
        model: the target as the user named it.
        k: drafted depth.
        result: what was generated.
        plain: the same request decoded plainly.
    """

    model: str
    k: int
    result: Generation
    plain: Generation | None = None

    @property
    def prediction(self) -> Prediction | None:
        """What the theory expects; None if no rule reported an alpha or nothing was measured."""
        stats, plain = self.result.stats, self.plain.stats if self.plain else None
        if not stats.cycles or stats.target_seconds <= 0 or (stats.drafted and not stats.alphas):
            return None
        depth = max(self.k, 1)
        tokens = min(1 + sum(stats.alphas) / stats.cycles, depth + 1.0)  # alphas are float32
        verify = stats.target_seconds / stats.cycles
        draft = stats.draft_seconds / stats.cycles
        if plain is None or not plain.cycles:
            single = verify
        else:
            # What a plain cycle costs in all stands against what a speculative one does.
            single = plain.decode_seconds / plain.cycles
            verify += stats.rest_seconds / stats.cycles
        return Prediction(
            tokens=tokens,
            c=stats.draft_seconds / stats.drafted / single if stats.drafted else None,
            speedup=measured_speedup(
                tokens,
                depth,
                pass_time=lambda rows: single if rows == 1 else verify,
                draft_time=draft / depth,
            ),
            assumes="flat" if plain is None else "measured",
        )

    @property
    def speedup(self) -> float | None:
        """Measured: plain seconds per token over speculative seconds per token."""
        if self.plain is None or not self.plain.stats.tokens_per_second:
            return None
        return self.result.stats.tokens_per_second / self.plain.stats.tokens_per_second

    @property
    def equal(self) -> bool | None:
        """Whether plain decoding gave the same tokens."""
        return None if self.plain is None else self.plain.token_ids == self.result.token_ids

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        prediction = self.prediction
        values = {
            "model": self.model,
            "k": self.k,
            "verify": self.result.verify,
            "exact": self.result.exact,
            **self.result.as_dict(),
            "prediction": None if prediction is None else vars(prediction),
        }
        if self.plain is not None:
            values["compare"] = {
                "tokens_equal": self.equal,
                "first_difference": self.first_difference,
                "seconds": self.result.stats.decode_seconds,
                "plain_seconds": self.plain.stats.decode_seconds,
                "plain_tokens_per_second": self.plain.stats.tokens_per_second,
                "plain_token_ids": list(self.plain.token_ids),
                "measured_speedup": self.speedup,
                "predicted_speedup": None if prediction is None else prediction.speedup,
            }
        return values

    @property
    def first_difference(self) -> int | None:
        """Index of the first token in which the two runs differ; None without one."""
        if self.plain is None or self.equal:
            return None
        pairs = zip(self.result.token_ids, self.plain.token_ids, strict=False)
        shorter = min(len(self.result.token_ids), len(self.plain.token_ids))
        return next((i for i, (ours, theirs) in enumerate(pairs) if ours != theirs), shorter)

    @property
    def title(self) -> str:
        """The setting in a line."""
        result = self.result
        label = result.verify if result.exact else f"{result.verify} (LOSSY)"
        return f" {self.model} · {result.drafter} · k = {self.k} · {label} "

    def lines(self) -> list[list[Span]]:
        """The panel's lines."""
        result, stats = self.result, self.result.stats
        first = stats.first_token_seconds
        lines: list[list[Span]] = [
            [
                (f"{stats.tokens_per_second:.0f} tokens/s", "bold"),
                (f"   {stats.emitted} tokens in {stats.decode_seconds:.2f} s", ""),
                (f", first after {first:.2f} s" if first is not None else "", ""),
                (f"   seed {result.seed}", "dim"),
            ]
        ]
        if stats.drafted:
            alpha = "not measured" if stats.alpha is None else f"{stats.alpha:.2f}"
            lines.append(
                [
                    (f"acceptance length {stats.acceptance_length:.2f}", "bold"),
                    (f" tokens per pass   alpha {alpha}", ""),
                    (f"   accepted {stats.accepted} of {stats.drafted} drafted", ""),
                ]
            )
            lines.append(self._origins())
        if (prediction := self.prediction) is not None and (stats.drafted or self.plain):
            flat = " if a pass costs the same for any number of tokens"
            lines.append(
                [
                    (f"predicted speedup {prediction.speedup:.2f}×", "bold"),
                    (flat if prediction.assumes == "flat" else " at the measured cost", "dim"),
                ]
            )
        if self.plain is not None:
            lines.append(self._comparison())
        return lines

    def _origins(self) -> list[Span]:
        counts = {o: self.result.origins.count(o) for o in ("draft", "residual", "bonus")}
        return [
            ("■ ", "green"),
            (f"{counts['draft']} drafted and accepted   ", ""),
            ("■ ", "yellow"),
            (f"{counts['residual']} residual   ", ""),
            (f"■ {counts['bonus']} bonus", ""),
        ]

    def _comparison(self) -> list[Span]:
        assert self.plain is not None
        stats = self.plain.stats
        speedup = "" if self.speedup is None else f"measured speedup {self.speedup:.2f}×"
        if self.equal:
            verdict: Span = ("   same tokens", "green")
        elif self.result.verify != "coupled" and self.result.exact:
            # Exact rules keep the distribution; only the coupled one keeps the very draws.
            verdict = (f"   tokens differ from {self.first_difference} on", "")
        else:
            verdict = (f"   tokens differ from {self.first_difference} on", "yellow")
        return [
            (speedup, "bold"),
            (
                f"   plainly {stats.tokens_per_second:.0f} tokens/s, {stats.decode_seconds:.2f} s",
                "",
            ),
            verdict,
        ]
