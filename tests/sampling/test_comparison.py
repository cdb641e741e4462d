from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch

from slipstream.sampling.comparison import excess, overlap

P = [0.5, 0.25, 0.125, 0.125, 0.0]
Q = [0.125, 0.25, 0.25, 0.25, 0.125]


@pytest.mark.parametrize("array", [np.asarray, torch.asarray])
def test_what_p_and_q_share_and_where_p_has_more(array) -> None:
    p = array(np.asarray(P, np.float32))
    q = array(np.asarray(Q, np.float32))
    assert overlap(p, q) == sum(map(min, P, Q))
    assert excess(p, q).tolist() == [max(a - b, 0.0) for a, b in zip(P, Q, strict=True)]
    assert excess(p, q, 0.5).tolist() == [max(a / 2 - b, 0.0) for a, b in zip(P, Q, strict=True)]


@pytest.mark.parametrize("size", [5, 1500])
def test_overlap_and_excess_make_up_p(size: int) -> None:
    rng = np.random.default_rng(0)
    p, q = (rng.random(size).astype(np.float32) for _ in range(2))
    exact = sum(Fraction(float(min(a, b))) for a, b in zip(p, q, strict=True))
    assert overlap(p, q) == pytest.approx(float(exact), rel=1e-6)
    assert overlap(p, q) + excess(p, q).sum() == pytest.approx(p.sum(dtype=np.float64), rel=1e-6)
    assert overlap(p, p) == pytest.approx(p.sum(dtype=np.float64), rel=1e-6)
    assert not excess(p, p).any()
