"""The random calls of `fuzz/` can fail: each kind of mistake, made in a copy of the source, is found.

`scripts/sanitize` runs them on the source as it is. Compiled for the lowest instruction set alone: soonest done.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src/paceline/native/source"
FUZZ = ROOT / "tests/native/fuzz"
COMPILER = os.environ.get("CXX", "c++")
PARTS = (
    *("products=40", "rows=20", "attention=60", "draws=100", "trees=50"),
    *("neighbours=90", "networks=6", "contexts=6", "pools=20"),
)

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which(COMPILER) is None, reason=f"There is no {COMPILER}."),
    pytest.mark.skipif(not SOURCE.is_dir(), reason="The C++ source is not here."),
]


class Program:
    """The driver with one sanitizer: compiled once, and again as far as a change goes."""

    def __init__(self, sanitizer: str, place: Path) -> None:
        self._flags = ["-std=c++20", "-O0", "-Wno-psabi", "-ffp-contract=off", f"-fsanitize={sanitizer}", "-pthread"]
        self._place = place
        names = sorted((*SOURCE.glob("*.cpp"), *FUZZ.glob("*.cpp")))
        names.remove(SOURCE / "amx.cpp")  # for one instruction set only
        with ThreadPoolExecutor(2) as pool:
            self._objects = dict(zip(names, pool.map(lambda path: self._compile(path, SOURCE), names), strict=True))

    def _compile(self, path: Path, headers: Path) -> Path:
        found = self._place / f"{headers.name}-{path.stem}.o"
        subprocess.run([COMPILER, *self._flags, f"-I{headers}", "-c", path, "-o", found], check=True)
        return found

    def run(self, *parts: str) -> subprocess.CompletedProcess[str]:
        return self._run(self._objects, parts)

    def run_changed(self, file: str, before: str, after: str, unit: str, parts: tuple[str, ...]) -> str:
        """What it says of a source in which `before`, which stands in `file` once, is `after`; it has to fail."""
        changed = Path(shutil.copytree(SOURCE, self._place / f"changed-{len(list(self._place.iterdir()))}"))
        text = (changed / file).read_text(encoding="utf-8")
        assert text.count(before) == 1, f"{file} was changed: say here how to break it now"
        (changed / file).write_text(text.replace(before, after), encoding="utf-8")
        done = self._run({**self._objects, SOURCE / unit: self._compile(changed / unit, changed)}, parts)
        assert done.returncode != 0, f"nothing was found: {done.stdout}"
        return done.stderr

    def _run(self, objects: dict[Path, Path], parts: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
        program = self._place / "program"
        subprocess.run([COMPILER, *self._flags, *objects.values(), "-o", program], check=True)
        return subprocess.run([program, "1", *parts], capture_output=True, text=True, timeout=300, check=False)


class Mistake(NamedTuple):
    file: str
    before: str
    after: str
    unit: str
    told: str


KERNELS = "kernels.cpp"

MISTAKES = {
    "a mask that masks nothing": Mistake("attention.h", "if (!sees(query, own))", "if (false)", KERNELS, "attention"),
    "one value too many is read": Mistake(
        "simd.h", "memcpy(lanes, from, count * ", "memcpy(lanes, from, (count + 1) * ", KERNELS, "heap-buffer-overflow"
    ),
    "five rows are multiplied in another way": Mistake(
        "product.h",
        "S::factor(x.at + r * x.stride",
        "S::factor(x.at + (R == 5 ? 0 : r) * x.stride",
        KERNELS,
        " alone",
    ),
    "a scale of the group before": Mistake(
        "product.h", "from * S::bytes);\n        lines +=", "0);\n        lines +=", KERNELS, "a product"
    ),
    "rows that are cut off, not rounded": Mistake(
        "factors.h",
        "? (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u",
        "? bits & 0xffff0000u",
        KERNELS,
        "a product",
    ),
    "a scale of the first row": Mistake("product.h", "? x.scales[r] : 1", "? x.scales[0] : 1", KERNELS, " alone"),
    "inputs in another order": Mistake(
        "formats.h", "<< 8 >> 8), (Integers)", ">> 8), (Integers)", KERNELS, "a product"
    ),
    "a window of one more": Mistake(
        "visibility.cpp", ">= *reach.window", "> *reach.window", "visibility.cpp", "networks, case"
    ),
    "a neighbour of another block": Mistake(
        "convolutions.cpp", "std::min(left + 1, size_)", "size_", "convolutions.cpp", "heap-buffer-overflow"
    ),
    "neighbours that were convolved before": Mistake(
        "convolutions.cpp",
        "long row = x.rows - 1; row >= 0; --row",
        "long row = 0; row < x.rows; ++row",
        "convolutions.cpp",
        "networks, case",
    ),
    "numbers of the group before": Mistake(
        "elementwise.h",
        "left = group - channel % group",
        "left = 1 + group - channel % group",
        KERNELS,
        "a convolution",
    ),
    "a last block that is read to its end": Mistake(
        "draw.h", "std::max(kLeast, values.greatest - margin)", "values.greatest - margin", KERNELS, "overflow"
    ),
    "keys in the place of another layer": Mistake(
        "network.cpp", "(2 * index + kv / kv_heads)", "(index + kv / kv_heads)", "network.cpp", "networks, case"
    ),
    "a key of another layer's norm": Mistake(
        "context.cpp", "block / (2 * shape_.kv_heads) * dim", "block / shape_.kv_heads * dim", "context.cpp", "context"
    ),
    "scores of the row before": Mistake(
        "network.cpp",
        "norm(pass.scored.rows[i],",
        "norm(std::max(0L, pass.scored.rows[i] - 1),",
        "network.cpp",
        "scores",
    ),
    "an equal prefix goes first": Mistake(
        "tree.cpp", "number > other.number", "number < other.number", "tree.cpp", "tree"
    ),
}


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    return Program("address", tmp_path_factory.mktemp("address"))


def test_the_source_as_it_is(program: Program) -> None:
    done = program.run(*PARTS)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_found(name: str, program: Program) -> None:
    *change, told = MISTAKES[name]
    assert told in program.run_changed(*change, PARTS)


def test_a_race_is_found(tmp_path: Path) -> None:
    """A meeting that orders nothing: right by chance on x86, and wrong by the rules."""
    program = Program("thread", tmp_path)
    parts = ("pools=20",)
    assert program.run(*parts).returncode == 0
    loose = ("meeting.load(std::memory_order_acquire) == meeting", "meeting.load(std::memory_order_relaxed) == meeting")
    assert "data race" in program.run_changed("pool.cpp", *loose, "pool.cpp", parts)


def test_what_it_does_not_know_is_an_error(program: Program) -> None:
    assert program.run("nothing=1").returncode == 1
