"""Exact and near duplicates of short texts, by MinHash (Broder 1997) of their word trigrams.

Two texts share each signature entry with a probability equal to the Jaccard similarity of their
trigram sets. Bands of entries find candidates, all entries decide. Knows no tokenizer and no files.
M signature entries.
"""

from __future__ import annotations

import re
import zlib
from typing import Final

import numpy as np
import numpy.typing as npt

ENTRIES: Final = 16
_BAND: Final = 4
_SIMILAR: Final = 0.75
_WORDS: Final = re.compile(r"\w+")

_rng = np.random.default_rng(20_200_101)
_MULTIPLIERS: Final = _rng.integers(1, 2**31, ENTRIES, np.uint64) | np.uint64(1)
_OFFSETS: Final = _rng.integers(0, 2**31, ENTRIES, np.uint64)


def signature(text: str) -> npt.NDArray[np.int32]:
    """(M,) MinHash of a text's word trigrams, case and punctuation aside."""
    words = _WORDS.findall(text.lower())
    grams = {" ".join(words[i : i + 3]) for i in range(max(1, len(words) - 2))}
    hashes = np.array([zlib.crc32(gram.encode()) for gram in grams], np.uint64)
    mixed = (hashes[:, None] * _MULTIPLIERS + _OFFSETS) >> np.uint64(16)
    smallest = (mixed & np.uint64(0x7FFFFFFF)).min(axis=0)
    return np.asarray(smallest, np.int32)


class Seen:
    """The texts kept so far, by signature."""

    def __init__(self) -> None:
        self._bands: dict[tuple[int, bytes], list[npt.NDArray[np.int32]]] = {}

    def add(self, entries: npt.NDArray[np.int32]) -> bool:
        """Take note of a text; False if one much like it was there already."""
        keys = [
            (start, entries[start : start + _BAND].tobytes()) for start in range(0, ENTRIES, _BAND)
        ]
        for key in keys:
            for other in self._bands.get(key, ()):
                if float((other == entries).mean()) >= _SIMILAR:
                    return False
        for key in keys:
            self._bands.setdefault(key, []).append(entries)
        return True


def is_held_out(text: str, share: float) -> bool:
    """Whether a text belongs to the held-out split: its hash decides, so it always does.

    Texts that differ in case, spacing or punctuation only fall on the same side.
    """
    normal = " ".join(_WORDS.findall(text.lower()))
    return zlib.crc32(normal.encode()) < share * 2**32
