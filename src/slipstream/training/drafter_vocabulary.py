"""Which tokens a drafter can propose: those that the target's own answers are made of.

A smaller LM head is a faster drafter; what it leaves out can never be accepted, and is counted so.
V target vocabulary, v drafter vocabulary.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from slipstream.errors import InvalidInput
from slipstream.training.shards import Shard

Counts = npt.NDArray[np.int64]


def count_tokens(shards: Iterable[Shard], vocab_size: int, *, held_out: bool) -> Counts:
    """(V,) how often each token was said in answers, or was the target's best one there."""
    counts = np.zeros(vocab_size, np.int64)
    for shard in shards:
        for number in np.flatnonzero(shard.held_out == held_out):
            begin, end = shard.offsets[number : number + 2].tolist()
            begin += int(shard.answer_starts[number])
            counts += np.bincount(shard.tokens[begin:end], minlength=vocab_size)
            best = shard.top_ids[begin - 1 : end - 1, 0]
            counts += np.bincount(best, minlength=vocab_size)
    return counts


def choose(counts: Counts, size: int, always: Sequence[int] = ()) -> npt.NDArray[np.int64] | None:
    """(v,) ascending ids of the ``size`` most frequent tokens; None if that is all of them.

    Args:
        always: ids that are in whatever their count, such as end tokens.

    Raises:
        InvalidInput: a size below the number of tokens that are always in.
    """
    if size >= len(counts):
        return None
    if size < max(1, len(always)):
        raise InvalidInput(f"a drafter vocabulary of {size} is too small")
    order: Any = np.lexsort((np.arange(len(counts)), -counts))
    chosen = list(dict.fromkeys([*always, *order.tolist()]))[:size]
    return np.sort(np.array(chosen, np.int64))


def coverage(counts: Counts, ids: npt.NDArray[np.int64] | None) -> float:
    """Share of the counted tokens that the vocabulary holds."""
    total = int(counts.sum())
    return 1.0 if ids is None or not total else float(counts[ids].sum() / total)
