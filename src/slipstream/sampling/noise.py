"""Counter-based random numbers: every draw has an address, so nothing can shift another draw.

Philox4x32-10 (Salmon et al., SC 2011) maps (key, counter) to 128 random bits. The key is the
request's seed; the counter spells out what the number is for. No generator, no state: changing k,
the drafter, the batch or a retry can't move anybody else's draw. Written in int64 array-API
arithmetic, so that numpy and torch give the same bits on any device.

Two kinds of address:

* ``pick(offset)`` belongs to (seed, position) alone. It is the noise of the plain sampler, and
  what the coupled rule shares between drafter and target.
* ``draft`` and ``accept`` also carry the cycle, named by the number of committed tokens at its
  start. A position may be drafted again in a later cycle after a rejection; a rule whose verdict
  looked at the old draw (block verification judges from the far end) must not meet it again.

The layout is public, because the compiled core computes the same numbers: the four counter words
are (token id >> 2, position, cycle start, purpose | node << 8), and token id & 3 chooses one of the
four words of the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from array_api_compat import array_namespace, device

from slipstream.errors import InvalidInput
from slipstream.types import Array

PICK: Final = 0
DRAFT: Final = 1
ACCEPT: Final = 2
"""Purposes, the low byte of the last counter word."""

MIN_EXPONENTIAL: Final = -math.log((2.0**32 - 0.5) * 2.0**-32)
"""The smallest value that :meth:`Stream.exponentials` can return, about 1.2e-10."""

_FEW: Final = 24
_MASK: Final = 0xFFFFFFFF
_MULTIPLIERS: Final = (0xD2511F53, 0xCD9E8D57)
_WEYL: Final = (0x9E3779B9, 0xBB67AE85)

Word = TypeVar("Word", int, Any)


def philox(counter: tuple[Word, Word, Word, Word], key: tuple[int, int]) -> tuple[Word, ...]:
    """Ten rounds of Philox4x32: four counter words and two key words to four random words.

    Words are Python ints, or int64 arrays of one or more dimensions, all in [0, 2^32). Products
    wrap around in int64, which keeps their 64 bits; the masks drop the copied signs.
    """
    c0, c1, c2, c3 = counter
    k0, k1 = key
    for _ in range(10):
        low, high = c0 * _MULTIPLIERS[0], c2 * _MULTIPLIERS[1]
        c0, c1, c2, c3 = (
            ((high >> 32) & _MASK) ^ c1 ^ k0,
            high & _MASK,
            ((low >> 32) & _MASK) ^ c3 ^ k1,
            low & _MASK,
        )
        k0, k1 = (k0 + _WEYL[0]) & _MASK, (k1 + _WEYL[1]) & _MASK
    return c0, c1, c2, c3


@dataclass(frozen=True)
class Stream:
    """The random numbers of one draw, one for each token id.

    Args:
        key: low and high word of the seed.
        words: counter words 1 to 3: position, cycle start, purpose | node << 8.
    """

    key: tuple[int, int]
    words: tuple[int, int, int]

    def bits(self, ids: Array) -> Array:
        """32 random bits per token id, as int64; ``ids`` has one dimension."""
        xp = array_namespace(ids)
        ids = xp.astype(ids, xp.int64)
        first, last = int(xp.min(ids)) >> 2, int(xp.max(ids)) >> 2
        if last - first < ids.shape[0]:  # dense: compute each block of four ids once
            blocks = xp.arange(first, last + 1, dtype=xp.int64, device=device(ids))
            dense = xp.stack(philox((blocks, *self.words), self.key), axis=1)
            return xp.reshape(dense, (-1,))[ids - 4 * first]
        w0, w1, w2, w3 = philox((ids >> 2, *self.words), self.key)
        odd = (ids & 1) == 1
        return xp.where(ids & 2 == 0, xp.where(odd, w1, w0), xp.where(odd, w3, w2))

    def exponentials(self, ids: Array) -> Array:
        """A standard exponential per token id: float64, -log((bits + 1/2) / 2^32)."""
        xp = array_namespace(ids)
        if ids.shape[0] > _FEW:
            return -xp.log((xp.astype(self.bits(ids), xp.float64) + 0.5) * 2.0**-32)
        # For a few, plain Python beats the hundred calls to an array library; the bits are equal.
        tokens = ids.tolist()
        words = {
            block: philox((block, *self.words), self.key) for block in {t >> 2 for t in tokens}
        }
        uniforms = [(words[t >> 2][t & 3] + 0.5) * 2.0**-32 for t in tokens]
        return -xp.log(xp.asarray(uniforms, dtype=xp.float64, device=device(ids)))

    def uniform(self) -> float:
        """One number in [0, 1), of 53 bits."""
        w0, w1, _, _ = philox((0, *self.words), self.key)
        return float(((w0 << 21) | (w1 >> 11)) * 2.0**-53)


@dataclass(frozen=True)
class CycleNoise:
    """A request's random numbers for one cycle. Offset 0 is the first position after its start.

    Args:
        key: low and high word of the seed.
        start: committed tokens when the cycle begins.
    """

    key: tuple[int, int]
    start: int

    def pick(self, offset: int) -> Stream:
        """The plain sampler's noise at a position: the same in whatever cycle it is asked for."""
        return Stream(self.key, (self.start + offset, 0, PICK))

    def draft(self, offset: int, row: int) -> Stream:
        """Noise for drawing the children of the node in ``row`` (0 the root, i + 1 node i).

        ``offset`` is the depth of that node, the root's being 0.
        """
        return Stream(self.key, (self.start + offset, self.start, DRAFT | row << 8))

    def accept(self, row: int) -> float:
        """The uniform in [0, 1) that decides on the drafted node in ``row`` (i + 1 for node i)."""
        return Stream(self.key, (self.start, self.start, ACCEPT | row << 8)).uniform()


@dataclass(frozen=True)
class Noise:
    """All random numbers of one request.

    Args:
        seed: in [0, 2^64).

    Raises:
        InvalidInput: a seed outside that range.
    """

    seed: int

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise InvalidInput(f"seed must be a whole number in [0, 2^64), not {self.seed!r}")

    def cycle(self, start: int) -> CycleNoise:
        """The numbers of the cycle that begins with ``start`` committed tokens."""
        return CycleNoise((self.seed & _MASK, self.seed >> 32), start)
