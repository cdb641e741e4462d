"""Logits processors: one function each, and their composition into a sampling distribution.

Hugging Face's order and results (transformers' ``LogitsProcessor`` classes); presence and frequency
penalties are OpenAI's, on output tokens. Bias, penalties and masks act on logits; temperature and
top-k too; then logits become *weights*, exp(logit - max), on which top-p and min-p act; the weights
left are normalised last. Vocabularies are never sorted: top-k partitions, and top-p sorts only the
tokens that are heavy enough to be kept. Where the compiled core takes the row, it does all from the
temperature on in one call, for every row of a request or for none.

Knows no trees: prompt and output are those of the row at hand. Never writes to its inputs; works on
numpy arrays and torch tensors of any device. V vocabulary.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final, NoReturn

from array_api_compat import array_namespace, device

from slipstream.config import SamplingParams
from slipstream.errors import InvalidInput, NumericalError
from slipstream.kernels import sampling as compiled
from slipstream.sampling.noise import Stream
from slipstream.sampling.race import race
from slipstream.sampling.selection import kth_largest
from slipstream.types import Array

_COLDEST: Final = 1e-20
"""Temperatures below this act like it: all but the best tokens have weight 0 in float32."""

_FEW: Final = 256
"""How many tokens top-p sorts without looking for fewer."""


def process_logits(
    logits_V: Array, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Array:
    """The distribution that a request samples its next token from.

    Args:
        logits_V: (V,) float32, the model's.
        params: see :class:`slipstream.config.SamplingParams`, also for the order of processors.
        prompt: token ids of the prompt.
        output: token ids after it, up to this row; drafted ancestors included.

    Returns:
        (V,) float32 probabilities; at temperature 0 exactly one-hot.

    Raises:
        NumericalError: NaN or infinite logits, or every token is masked.
        InvalidInput: ``params`` names a token outside the vocabulary.
    """
    return _distribution(_move_tokens(logits_V, params, prompt, output), params)


def draw(
    logits_V: Array,
    params: SamplingParams,
    prompt: Sequence[int],
    output: Sequence[int],
    stream: Stream,
) -> tuple[Array, int]:
    """:func:`process_logits`, and the winner of the race over the result.

    Other args and errors are those of :func:`process_logits`.
    """
    moved_V = _move_tokens(logits_V, params, prompt, output)
    if compiled.fits(moved_V):
        probs_V, best, token = compiled.draw(
            moved_V,
            params.temperature,
            params.top_k,
            params.top_p,
            params.min_p,
            stream.key,
            stream.words,
        )
        if not math.isfinite(best):
            _refuse(best)
        return probs_V, token
    probs_V = _distribution(moved_V, params)
    return probs_V, race(probs_V, stream)[0]


def best_token(
    logits_V: Array, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> int:
    """The token that has all the mass at temperature 0, without its distribution.

    Args and errors are those of :func:`process_logits`.
    """
    return _highest(_move_tokens(logits_V, params, prompt, output))


def _distribution(moved_V: Array, params: SamplingParams) -> Array:
    """What temperature and filters make of logits that are moved already."""
    if compiled.fits(moved_V):
        probs_V, best = compiled.distribution(
            moved_V, params.temperature, params.top_k, params.top_p, params.min_p
        )
        if not math.isfinite(best):
            _refuse(best)
        return probs_V
    if params.greedy:
        return one_hot_of_best(moved_V)
    weights_V = weights(top_k(temperature(moved_V, params.temperature), params.top_k))
    return normalize(min_p(top_p(weights_V, params.top_p), params.min_p))


def _move_tokens(
    logits_V: Array, params: SamplingParams, prompt: Sequence[int], output: Sequence[int]
) -> Array:
    """Everything that treats some tokens differently; the same array if nothing does."""
    if not params.moves_tokens:
        return logits_V
    moved_V = logit_bias(logits_V, params.logit_bias)
    moved_V = repetition_penalty(moved_V, params.repetition_penalty, prompt, output)
    moved_V = presence_and_frequency_penalty(
        moved_V, params.presence_penalty, params.frequency_penalty, output
    )
    if params.allowed_token_ids is not None:
        moved_V = allow_only(moved_V, params.allowed_token_ids)
    moved_V = ban(moved_V, params.banned_token_ids)
    if moved_V is not logits_V:
        _best(logits_V)  # a mask could hide NaN
    return moved_V


def logit_bias(logits_V: Array, bias: Mapping[int, float]) -> Array:
    """Add a number to the logits of some tokens."""
    if not bias:
        return logits_V
    xp = array_namespace(logits_V)
    ids = _ids(logits_V, list(bias), "logit_bias")
    added = xp.asarray(list(bias.values()), dtype=logits_V.dtype, device=device(logits_V))
    return _replace(logits_V, ids, logits_V[ids] + added)


def repetition_penalty(
    logits_V: Array, penalty: float, prompt: Sequence[int], output: Sequence[int]
) -> Array:
    """Divide positive and multiply negative logits of tokens seen before (1909.05858, eq. 6)."""
    if penalty == 1.0 or not (prompt or output):
        return logits_V
    xp = array_namespace(logits_V)
    # A token that occurs twice is replaced by the same number twice, so no set is needed.
    ids = _ids(logits_V, [*prompt, *output], "the prompt or output")
    old = logits_V[ids]
    return _replace(logits_V, ids, xp.where(old < 0, old * penalty, old / penalty))


def presence_and_frequency_penalty(
    logits_V: Array, presence: float, frequency: float, output: Sequence[int]
) -> Array:
    """Subtract ``presence`` once and ``frequency`` per occurrence from tokens of the output."""
    if not output or (presence == 0.0 and frequency == 0.0):
        return logits_V
    xp = array_namespace(logits_V)
    counts = Counter(output)
    ids = _ids(logits_V, list(counts), "the output")
    penalties = [presence + frequency * count for count in counts.values()]
    penalties = xp.asarray(penalties, dtype=logits_V.dtype, device=device(logits_V))
    return _replace(logits_V, ids, logits_V[ids] - penalties)


def allow_only(logits_V: Array, tokens: Sequence[int]) -> Array:
    """Mask all other tokens."""
    xp = array_namespace(logits_V)
    ids = _ids(logits_V, tokens, "allowed_token_ids")
    return _replace(xp.full_like(logits_V, -math.inf), ids, logits_V[ids])


def ban(logits_V: Array, tokens: Sequence[int]) -> Array:
    """Mask these tokens."""
    if not tokens:
        return logits_V
    return _replace(logits_V, _ids(logits_V, tokens, "banned_token_ids"), -math.inf)


def one_hot_of_best(logits_V: Array) -> Array:
    """All mass on the highest logit, ties to the lowest id: the limit of temperature 0."""
    best = _highest(logits_V)
    probs_V = array_namespace(logits_V).zeros_like(logits_V)
    probs_V[best] = 1.0
    return probs_V


def temperature(logits_V: Array, value: float) -> Array:
    """Divide by a positive temperature; the best logit becomes 0, which keeps quotients finite."""
    return (logits_V - _best(logits_V)) / max(value, _COLDEST)


def top_k(logits_V: Array, k: int) -> Array:
    """Mask what is below the k-th highest logit; its ties stay. 0 keeps everything."""
    xp = array_namespace(logits_V)
    if not 0 < k < logits_V.shape[0]:
        return logits_V
    return xp.where(logits_V < kth_largest(logits_V, k), -math.inf, logits_V)


def weights(logits_V: Array) -> Array:
    """exp(logit - highest logit): probabilities up to a factor, the best token's weight 1."""
    xp = array_namespace(logits_V)
    return xp.exp(logits_V - _best(logits_V))


def top_p(weights_V: Array, mass: float) -> Array:
    """Keep the smallest set of heaviest tokens that holds a share ``mass`` of the weight.

    Of equal tokens at the edge the lower ids stay; Hugging Face's sort leaves that open.
    """
    if mass >= 1.0:
        return weights_V
    xp = array_namespace(weights_V)
    total, may_go = float(xp.sum(weights_V, dtype=xp.float64)), 1.0 - mass
    # What is lighter than the average share of what may go goes, all of it; then, while there are
    # still many, look for few that leave no more than that to the others.
    (ids,) = xp.nonzero(weights_V >= may_go * total / weights_V.shape[0])
    heavy, count = weights_V[ids], _FEW
    while count < heavy.shape[0]:
        among = heavy >= kth_largest(heavy, count)
        if 1.0 - float(xp.sum(heavy[among], dtype=xp.float64)) / total < may_go:
            ids, heavy = ids[among], heavy[among]
            break
        count *= 8
    light_share = 1.0 - float(xp.sum(heavy, dtype=xp.float64)) / total
    order = xp.argsort(heavy, descending=True, stable=True)
    ids, heavy = ids[order], heavy[order]
    # The share of a token and all behind it, the way the tail is cut.
    cut = xp.flip(xp.cumulative_sum(xp.flip(xp.astype(heavy, xp.float64)))) / total + light_share
    # Compared in float32, so that sums which only rounding separates from the edge lie on it.
    stays = xp.astype(cut, weights_V.dtype) > may_go
    stays[0] = True
    return _replace(xp.zeros_like(weights_V), ids[stays], heavy[stays])


def min_p(weights_V: Array, fraction: float) -> Array:
    """Drop tokens that weigh less than this fraction of the heaviest."""
    if fraction == 0.0:
        return weights_V
    xp = array_namespace(weights_V)
    return xp.where(weights_V < fraction * xp.max(weights_V), 0.0, weights_V)


def normalize(weights_V: Array) -> Array:
    """Divide by the sum."""
    return weights_V / array_namespace(weights_V).sum(weights_V)


def _highest(logits_V: Array) -> int:
    """The token with the highest logit, ties to the lowest id."""
    if compiled.fits(logits_V):
        token, best = compiled.best(logits_V)
    else:
        token = int(array_namespace(logits_V).argmax(logits_V))
        best = float(logits_V[token])
    if not math.isfinite(best):
        _refuse(best)
    return token


def _best(logits_V: Array) -> float:
    if compiled.fits(logits_V):
        best = compiled.largest(logits_V)
    else:
        best = float(array_namespace(logits_V).max(logits_V))
    if not math.isfinite(best):
        _refuse(best)
    return best


def _refuse(best: float) -> NoReturn:
    """Say what is wrong with logits whose highest is not finite."""
    if math.isnan(best):
        raise NumericalError("the model's logits contain NaN")
    if best == math.inf:
        raise NumericalError("the model's logits contain infinity")
    raise NumericalError("every token is masked: allowed, banned and the model leave nothing")


def _ids(logits_V: Array, tokens: Sequence[int], source: str) -> Array:
    xp = array_namespace(logits_V)
    size = logits_V.shape[0]
    if max(tokens) >= size:
        raise InvalidInput(
            f"{source} holds token {max(tokens)}, outside the vocabulary [0, {size})"
        )
    return xp.asarray(tokens, dtype=xp.int64, device=device(logits_V))


def _replace(values_V: Array, ids: Array, new: Array | float) -> Array:
    changed_V = array_namespace(values_V).asarray(values_V, copy=True)
    changed_V[ids] = new
    return changed_V
