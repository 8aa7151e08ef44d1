"""Where memory or threads run out: an error, after which everything works as before."""

from __future__ import annotations

import subprocess
import sys

import pytest
from compiled import needs_native

pytestmark = [needs_native, pytest.mark.skipif(sys.platform != "linux", reason="limits of Linux")]

LIMIT = """
import resource
from pathlib import Path
import torch
from paceline import native

torch.set_num_threads({threads})


def limit(free_bytes):
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + free_bytes, resource.RLIM_INFINITY))


def fails(call):
    try:
        call()
    except (MemoryError, RuntimeError):
        return True
    return False
"""

LONG_ROW = """
short, long = torch.zeros(1, 9), torch.zeros(1, 40_000_000)
native.drawn(short, 1.0, [1])
limit(100 << 20)
assert fails(lambda: native.drawn(long, 1.0, [1]))
assert fails(lambda: native.drawn(long, 1.0, [1]))
native.drawn(short, 1.0, [1])
"""

LONG_CACHE = """
one = torch.ones(4, 2)
layer = native.LayerWeights(one[0], one[0], None, None, torch.ones(6, 2), torch.ones(2, 2), one, one[:2], *[None] * 4)
network = native.Network(native.Sizes(1, 2, 1, 1, 2, 1e-6), [layer], one[0], one)
cache, angles = torch.zeros(1, 2, 1, 3_000_000, 2), torch.zeros(1, 1, 2)


def read(past):
    none, turn = torch.zeros(1, dtype=torch.int64), native.turn_of((angles, angles))
    return network.states(native.Batch(none, none, turn, [native.Rows(cache, past, 1, None)], [True], [None]))


read(5)
limit(100 << 20)
assert fails(lambda: read(2_900_000))
assert fails(lambda: read(2_900_000))
read(5)
"""

MANY_THREADS = """
from paceline.native.choice import extension, instructions

product = native.Product(torch.ones(64, 8), None)
limit(200 << 20)
assert fails(lambda: extension().Linear(extension().Pool(1000), instructions(), torch.ones(64, 8), None, native.EXACT))
assert product(torch.ones(1, 8)).sum() == 512
"""


@pytest.mark.parametrize(("code", "threads"), [(LONG_ROW, 1), (LONG_CACHE, 1), (MANY_THREADS, 2)])
def test_running_out(code: str, threads: int) -> None:
    program = LIMIT.format(threads=threads) + code
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
