from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from slipstream.errors import InvalidInput
from slipstream.sampling.noise import ACCEPT, DRAFT, MIN_EXPONENTIAL, PICK, Noise, Stream, philox

ONES = 0xFFFFFFFF


@pytest.mark.parametrize(
    ("counter", "key", "expected"),
    [
        ((0,) * 4, (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_philox_gives_the_published_random123_vectors(
    counter: tuple[int, ...], key: tuple[int, int], expected: tuple[int, ...]
) -> None:
    assert philox(counter, key) == expected
    for array in (np.asarray, torch.asarray):
        words = philox(tuple(array([word]) for word in counter), key)
        assert tuple(int(word[0]) for word in words) == expected


@pytest.mark.parametrize("ids", [[5], [0, 1, 2, 3, 7], range(1000), range(0, 90_000, 91)])
def test_a_token_has_the_same_bits_alone_among_others_and_in_torch(ids: list[int]) -> None:
    stream = Noise(2**63 + 12345).cycle(17).pick(2)
    alone = [philox((t >> 2, *stream.words), stream.key)[t & 3] for t in ids]
    assert stream.bits(np.array(ids)).tolist() == alone
    assert stream.bits(torch.tensor(list(ids))).tolist() == alone
    expected = -np.log((np.array(alone) + 0.5) * 2.0**-32)
    assert (stream.exponentials(np.array(ids)) == expected).all()
    assert torch.allclose(
        stream.exponentials(torch.tensor(list(ids))), torch.tensor(expected), rtol=1e-15, atol=0
    )


def test_addresses_are_as_documented() -> None:
    cycle = Noise((7 << 32) | 9).cycle(100)
    assert cycle.pick(3) == Stream((9, 7), (103, 0, PICK))
    assert cycle.draft(3, 5) == Stream((9, 7), (103, 100, DRAFT | 5 << 8))
    assert cycle.accept(5) == Stream((9, 7), (100, 100, ACCEPT | 5 << 8)).uniform()


def test_the_plain_samplers_noise_does_not_know_the_cycle() -> None:
    assert Noise(1).cycle(10).pick(5) == Noise(1).cycle(15).pick(0)
    assert Noise(1).cycle(10).draft(5, 0) != Noise(1).cycle(15).draft(0, 0)
    assert Noise(1).cycle(10).accept(1) != Noise(1).cycle(15).accept(1)


def test_all_addresses_of_a_cycle_differ() -> None:
    cycle = Noise(3).cycle(20)
    streams = [cycle.pick(i) for i in range(9)]
    streams += [cycle.draft(depth, row) for depth in range(5) for row in range(9)]
    assert len({stream.words for stream in streams}) == len(streams)
    assert len({cycle.accept(row) for row in range(1, 100)}) == 99


def test_exponentials_are_exponential_and_uniforms_uniform() -> None:
    exponentials = Noise(4).cycle(0).pick(0).exponentials(np.arange(20_000))
    assert stats.kstest(exponentials, "expon").pvalue > 1e-4
    cycle = Noise(5).cycle(0)
    assert stats.kstest([cycle.accept(row) for row in range(1, 5000)], "uniform").pvalue > 1e-4


def test_exponentials_stay_in_their_stated_range() -> None:
    largest = np.float64(2**32 - 1)
    assert -np.log((largest + 0.5) * 2.0**-32) == MIN_EXPONENTIAL > 0.0


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_outside_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(InvalidInput, match="2\\^64"):
        Noise(seed)
