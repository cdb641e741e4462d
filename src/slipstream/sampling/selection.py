"""The k-th largest of many numbers without sorting them, on numpy and on torch.

The array API standard has no partition; this is the one place that asks which library it has.
"""

from __future__ import annotations

from array_api_compat import array_namespace, is_numpy_array

from slipstream.types import Array


def kth_largest(values_V: Array, k: int) -> Array:
    """The k-th largest of (V,) values, 1 <= k <= V, as a 0-d array."""
    xp = array_namespace(values_V)
    if is_numpy_array(values_V):
        return xp.partition(values_V, -k)[-k]
    return xp.topk(values_V, k).values[-1]
