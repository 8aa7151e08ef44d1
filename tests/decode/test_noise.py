"""Each statistical test here is a fixed computation: it passes or fails for good, on every machine.

The bounds are 5 sigma (two-sided 6e-7 per number checked, before the seeds were fixed) unless a test says otherwise.
"""

import hashlib
import math
import struct

import pytest
import torch
from torch import Tensor

from paceline.decode.noise import NoiseCache, derive_seed, draw_seed, gumbel

M32, M64 = 2**32 - 1, 2**64 - 1


def row(positions: int | range, ids: int | range, seed: int = 3, stream: str = "token") -> Tensor:
    where = torch.tensor([positions] if isinstance(positions, int) else positions)
    what = torch.tensor([ids] if isinstance(ids, int) else ids)
    return gumbel(seed, stream, where, what[None])


def slow_gumbel(seed: int, stream: str, position: int, token: int) -> float:
    """The definition in plain integers: SplitMix64 for the key, triple32 for the bits, 52 bits of uniform."""

    def mix64(z: int) -> int:
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & M64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & M64
        return z ^ (z >> 31)

    def triple32(x: int) -> int:
        x = ((x ^ (x >> 17)) * 0xED5AD4BB) & M32
        x = ((x ^ (x >> 11)) * 0xAC4C1B51) & M32
        x = ((x ^ (x >> 15)) * 0x31848BAB) & M32
        return x ^ (x >> 14)

    step = 0x9E3779B97F4A7C15
    name = int.from_bytes(hashlib.blake2b(stream.encode(), digest_size=8).digest(), "little")
    key = mix64((mix64(mix64((seed + step) & M64) ^ name) + step * (position + 1)) & M64)
    bits = triple32(token) ^ (key & M32)
    bits = ((bits ^ (bits >> 16)) * 0x7FEB352D) & M32
    high, low = triple32(bits ^ (key >> 32)), bits & 0x1FFFFF | 1
    uniform = ((high ^ 0x80000000) * 2**21 + low) / 2**53
    return float(struct.unpack("f", struct.pack("f", -math.log(-math.log1p(-uniform))))[0])


PINNED = [
    ((0, "token", 0, 0), 0.7194057703018188),
    ((0, "token", 1, 0), 0.16952373087406158),
    ((0, "token", 0, 1), 1.0769201517105103),
    ((1, "token", 0, 0), 1.5621627569198608),
    ((0, "remask", 0, 0), 0.5083802938461304),
    ((-1, "token", 131071, 151935), 1.2693270444869995),
    ((2**63 - 1, "token", 7, 8191), 1.1298202276229858),
    ((-(2**63), "token", 7, 8191), -1.0710978507995605),
]


@pytest.mark.parametrize(("key", "value"), PINNED)
def test_frozen_values(key: tuple[int, str, int, int], value: float) -> None:
    seed, stream, position, token = key
    assert row(position, token, seed, stream).item() == value
    assert slow_gumbel(*key) == value


def test_tensor_form_equals_the_definition() -> None:
    noise = row(range(90, 110), range(50), seed=12345)
    slow = torch.tensor([[slow_gumbel(12345, "token", p, v) for v in range(50)] for p in range(90, 110)])
    assert torch.equal(noise, slow)


def test_a_key_has_one_value_whoever_asks() -> None:
    whole = row(range(40), range(5000))  # several blocks of rows
    assert torch.equal(row(range(17, 23), range(5000)), whole[17:23])
    ids = torch.tensor([4999, 3, 3, 0, 77])
    assert torch.equal(gumbel(3, "token", torch.tensor([39, 0]), ids[None]), whole[[39, 0]][:, ids])
    per_row = torch.tensor([[1, 4321], [9, 8]])
    assert torch.equal(gumbel(3, "token", torch.tensor([5, 6]), per_row), whole[5:7].gather(1, per_row))
    assert torch.equal(row(5, 1234), whole[5:6, 1234:1235])
    assert row(range(0), range(9)).shape == (0, 9)
    assert row(range(9), range(0)).shape == (9, 0)


def test_the_law_is_gumbel_in_body_and_tail() -> None:
    """Chi-square of exp(-exp(-g)) in 256 equal bins at z = 5 (false alarm 3e-7); upper tail within 5 sigma."""
    noise = row(range(400), range(10_000))
    count = torch.histc((-(-noise.double()).exp()).exp(), 256, 0.0, 1.0)
    expected = noise.numel() / 256
    assert chi_square_z(((count - expected) ** 2 / expected).sum().item(), 255) < 5
    for bound in (6.0, 9.0, 11.0):
        mean = noise.numel() * -math.expm1(-math.exp(-bound))
        assert abs((noise > bound).sum().item() - mean) < 5 * math.sqrt(mean) + 1
    assert -3.61 < noise.min() < noise.max() < 36.75


def test_the_upper_tail_is_not_a_grid() -> None:
    """A uniform of 24 bits has 5,600 values above g = 8: the 1,300 numbers found there would collide 150 times."""
    tail = row(range(400), range(10_000)).flatten()
    tail = tail[tail > 8]
    assert len(tail) > 1000
    assert len(tail) - len(tail.unique()) < 15


NEIGHBOURS = {
    "position": lambda: row(range(1, 401), range(500)),
    "far position": lambda: row(range(2**20, 2**20 + 400), range(500)),
    "id": lambda: row(range(400), range(1, 501)),
    "far id": lambda: row(range(400), range(2**16, 2**16 + 500)),
    "seed": lambda: row(range(400), range(500), seed=4),
    "high bit of seed": lambda: row(range(400), range(500), seed=3 - 2**63),
    "derived seed": lambda: row(range(400), range(500), seed=derive_seed(3, 1)),
    "stream": lambda: row(range(400), range(500), stream="remask"),
    "position and id": lambda: row(range(1, 401), range(1, 501)),
    "position against id": lambda: row(range(500), range(400)).T,
}


@pytest.mark.parametrize("name", NEIGHBOURS)
def test_keys_do_not_correlate(name: str) -> None:
    """Correlation of 200,000 pairs of uniforms, also of their distance from the middle, within 5 / sqrt(pairs)."""
    here, there = (
        torch.stack([u := (-(-noise.double()).exp()).exp().flatten(), (u - 0.5).abs()])
        for noise in (row(range(400), range(500)), NEIGHBOURS[name]())
    )
    cross = torch.corrcoef(torch.cat([here, there]))[:2, 2:]
    assert cross.abs().max() < 5 / math.sqrt(here.shape[1])


def test_each_bit_of_the_key_turns_the_noise() -> None:
    """One bit of position or id flips the sign of g - median half of the time: 65,536 numbers per bit, 5 sigma."""
    median = -math.log(math.log(2))
    base = row(range(256), range(256)) > median
    for bit in range(8, 24):
        other_id = row(range(256), range(2**bit, 2**bit + 256)) > median
        other_position = row(range(2**bit, 2**bit + 256), range(256)) > median
        for other in (other_id, other_position):
            assert abs((base != other).double().mean().item() - 0.5) < 5 * 0.5 / 256


def test_choices_have_their_own_reproducible_seeds() -> None:
    """Report sampling-04, the part that needs no model."""
    seeds = [derive_seed(7, i) for i in range(128)]
    assert seeds == [derive_seed(7, i) for i in range(128)]
    assert seeds[0] == 7
    assert len(set(seeds + [derive_seed(8, i) for i in range(128)])) == 256
    assert all(-(2**63) <= seed < 2**63 for seed in seeds)
    assert derive_seed(7, 1) == -5137267319001854395  # frozen
    assert derive_seed(derive_seed(7, 1), 1) != derive_seed(7, 2)


def test_drawn_seeds_differ_and_survive_json() -> None:
    """Equal seeds among 100: 6e-13."""
    seeds = {draw_seed() for _ in range(100)}
    assert len(seeds) == 100
    assert all(0 <= seed < 2**53 for seed in seeds)


def test_cache_equals_the_function() -> None:
    cache, whole = NoiseCache(seed=3, vocab_size=300), row(range(60), range(300))
    assert torch.equal(cache.at(range(10, 14)), whole[10:14])
    assert torch.equal(cache.at(range(12, 30)), whole[12:30])
    assert torch.equal(cache.at([29, 11, 11, 25]), whole[[29, 11, 11, 25]])
    assert torch.equal(cache.at(range(2)), whole[:2])  # before what it holds
    assert torch.equal(cache.at(range(50, 60)), whole[50:])  # after a gap
    ids = torch.tensor([[5, 299], [0, 7]])
    assert torch.equal(cache.at(range(50, 52), ids), whole[50:52].gather(1, ids))


def test_cache_computes_a_position_once_and_forgets() -> None:
    cache, whole = NoiseCache(seed=3, vocab_size=300), row(range(60), range(300))
    first = cache.at(range(10, 14))
    assert cache.at(range(10, 14)).data_ptr() == first.data_ptr()
    cache.forget(below=12)
    cache.forget(below=11)
    assert torch.equal(cache.at(range(12, 16)), whole[12:16])
    cache.forget(below=1000)
    assert torch.equal(cache.at(range(12, 16)), whole[12:16])
    NoiseCache(seed=3, vocab_size=300).forget(below=5)


def chi_square_z(statistic: float, freedom: int) -> float:
    """The normal quantile of a chi-square statistic (Wilson and Hilferty 1931)."""
    return ((statistic / freedom) ** (1 / 3) - 1 + 2 / (9 * freedom)) / math.sqrt(2 / (9 * freedom))
