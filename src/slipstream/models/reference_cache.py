"""Keys and values of one sequence of the numpy reference: committed slots first, then pending ones.

Holds arrays only; which slot is what, the ledger knows. Shape letters: L blocks, S slots, K key
heads, D numbers per head.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


class ReferenceCache:
    """(L, S, K, D) rotated keys, and values, of one sequence; S grows."""

    def __init__(self, layers: int, heads: int, head_dim: int) -> None:
        self.keys = np.empty((layers, 0, heads, head_dim), np.float32)
        self.values = self.keys.copy()

    def reserve(self, length: int) -> None:
        """Make room for that many slots, at least doubling."""
        capacity = self.keys.shape[1]
        if length > capacity:
            missing = max(length - capacity, capacity, 32)
            room = np.zeros((self.keys.shape[0], missing, *self.keys.shape[2:]), np.float32)
            self.keys = np.concatenate([self.keys, room], axis=1)
            self.values = np.concatenate([self.values, room], axis=1)

    def keep(self, committed: int, path: Sequence[int]) -> None:
        """Move a path of pending slots to directly behind the committed ones."""
        source = committed + np.asarray(path, np.int64)
        target = slice(committed, committed + len(source))
        if len(source) and source[-1] >= target.stop:  # else they stand there already
            self.keys[:, target] = self.keys[:, source]
            self.values[:, target] = self.values[:, source]
