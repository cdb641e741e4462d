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
    from slipstream.config import Depth
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
        k: drafted depth, or ``auto``.
        result: what was generated.
        plain: the same request decoded plainly.
    """

    model: str
    k: Depth
    result: Generation
    plain: Generation | None = None

    @property
    def prediction(self) -> Prediction | None:
        """What the theory expects; None if no rule reported an alpha or nothing was measured."""
        return self._predict(self.plain)

    def _predict(self, beside: Generation | None) -> Prediction | None:
        stats, plain = self.result.stats, beside.stats if beside else None
        if not stats.cycles or stats.target_seconds <= 0 or (stats.drafted and not stats.alphas):
            return None
        depth = max(len(stats.drafted_at) if self.k == "auto" else self.k, 1)
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
        """The setting in a few words; of a path only the last part."""
        name = self.model.rstrip("/\\").replace("\\", "/").rpartition("/")[2]
        return f" {name} · {self.result.drafter} · k = {self.k} · {self.result.verify} "

    def lines(self) -> list[list[Span]]:
        """The panel's lines: a label and what was measured."""
        result, stats = self.result, self.result.stats
        first = stats.first_token_seconds
        took = f", {stats.emitted} tokens in {stats.decode_seconds:.2f} s"
        after = "" if first is None else f", first after {first:.2f} s"
        lines = [_line("speed", _rate(stats.tokens_per_second), took + after)]
        if stats.drafted:
            alpha = "not measured" if stats.alpha is None else f"{stats.alpha:.2f}"
            share = f", alpha {alpha}, {stats.accepted} of {stats.drafted} drafted accepted"
            lines.append(
                _line("acceptance", f"{stats.acceptance_length:.2f} tokens per pass", share)
            )
            lines.append(_line("origin", "", "") + self._origins())
        if (prediction := self.prediction) is not None and (stats.drafted or self.plain):
            flat = self._predict(None)
            assert flat is not None
            how = " from alpha, if a pass of any width costs the same"
            if self.plain is not None:
                how += f"; {prediction.speedup:.2f}× at the costs measured"
            lines.append(_line("predicted", f"{flat.speedup:.2f}×", how))
        if self.plain is not None and self.speedup is not None:
            plain = self.plain.stats
            beside = f" over {_rate(plain.tokens_per_second)}, {plain.decode_seconds:.2f} s plainly"
            lines.append(_line("measured", f"{self.speedup:.2f}×", beside))
            lines.append(_line("tokens", *self._sameness()))
        lines.append(_line("seed", "", str(result.seed)))
        if not result.exact:
            what = f": {result.verify} does not keep the model's own distribution"
            lines.append(_line("exact", "no, LOSSY", what))
        return lines

    def _origins(self) -> list[Span]:
        counts = {o: self.result.origins.count(o) for o in ("draft", "residual", "bonus")}
        return [
            ("■ ", "green"),
            (f"{counts['draft']} drafted  ", ""),
            ("■ ", "yellow"),
            (f"{counts['residual']} residual  ", ""),
            (f"■ {counts['bonus']} bonus", ""),
        ]

    def _sameness(self) -> tuple[str, str]:
        if self.equal:
            return "the same", " with and without speculation"
        where = f"differ from token {self.first_difference} on"
        if self.result.exact and self.result.verify != "coupled":
            return where, f": {self.result.verify} keeps the distribution, not each seed's tokens"
        return where, ""


def _line(label: str, figure: str, rest: str) -> list[Span]:
    return [(f"{label:<12}", "dim"), (figure, "bold"), (rest, "")]


def _rate(tokens_per_second: float) -> str:
    digits = 0 if tokens_per_second >= 10 else 1
    return f"{tokens_per_second:.{digits}f} tokens/s"
