"""Which instruction set is taken; a network's threads in the child of a fork, and at the end of a program."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from types import ModuleType

import pytest
import torch
from compiled import filled as filled_cache
from compiled import needs_native, random_piece, read, same
from compiled import packed as packed_model
from tiny import tiny_spec

from paceline import native
from paceline.errors import ConfigError


def test_off_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "off")
    told = native.why_not()
    assert told is not None
    assert "\n" not in told
    assert not native.applies_to(torch.zeros(1, 1))


def test_not_built_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(native.VARIABLE, raising=False)
    monkeypatch.setattr("paceline.native.choice._load", lambda: None)
    assert "not built" in str(native.why_not())
    assert native.instruction_sets() == ()


@needs_native
def test_other_precisions_stay_in_torch() -> None:
    assert native.applies_to(torch.zeros(1, 1))
    assert not native.applies_to(torch.zeros(1, 1, dtype=torch.float64))
    assert not native.applies_to(torch.zeros(1, 1, dtype=torch.bfloat16))


@needs_native
def test_an_unknown_set_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(native.VARIABLE, "mmx")
    with pytest.raises(ConfigError, match="mmx"):
        native.why_not()


def test_the_environment_counts_as_it_is_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """What follows from it is kept by what it says, and not worked out again."""
    asked = list[str]()

    def sets() -> list[str]:
        asked.append("asked")
        return ["new", "old"]

    extension = ModuleType("extension")
    vars(extension)["instruction_sets"] = sets
    monkeypatch.setattr("paceline.native.choice._load", lambda: extension)
    for said, used in ((None, "new"), ("old", "old"), ("", "new"), ("off", "PACELINE_NATIVE is off."), ("new", "new")):
        monkeypatch.delenv(native.VARIABLE, raising=False)
        if said is not None:
            monkeypatch.setenv(native.VARIABLE, said)
        assert native.in_use() == native.in_use() == used
    assert asked == ["asked"]


def test_it_can_be_asked_for_without_torch() -> None:
    code = (
        "import sys; from paceline import native; native.in_use();"
        "assert not {'torch', 'numpy'} & set(sys.modules); native.applies_to; assert 'torch' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    assert {name for name in native.__all__ if not hasattr(native, name)} == set()
    with pytest.raises(AttributeError, match=r"'paceline\.native' has no attribute 'nothing'"):
        native.nothing  # noqa: B018


@needs_native
def test_there_is_always_a_baseline() -> None:
    assert native.instruction_sets()[-1] == "baseline"


@needs_native
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_after_use() -> None:
    """The child finds no threads and makes its own; 20 s are some thousand times what it takes."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    model = packed_model(tiny_spec())
    torch.set_num_threads(before)
    piece = random_piece(0, 64, 3, 4, tree=False)
    expected = read(model, [piece], [filled_cache(model, 4)]).hidden
    child = os.fork()
    if child == 0:
        found = read(model, [piece], [filled_cache(model, 4)]).hidden
        os._exit(0 if same(found, expected) else 1)
    assert _status(child, seconds=20) == 0
    assert same(read(model, [piece], [filled_cache(model, 4)]).hidden, expected)


@needs_native
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_during_calls() -> None:
    """Without waiting for the call, a child finds the right to compute taken by a thread that it does not have."""
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    product = native.Product(torch.randn(2000, 500, generator=torch.Generator().manual_seed(0)), None)
    torch.set_num_threads(before)
    x = torch.randn(8, 500, generator=torch.Generator().manual_seed(1))
    expected, done = product(x), threading.Event()

    def work() -> None:
        while not done.is_set():
            product(x)

    worker = threading.Thread(target=work)
    worker.start()
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                os._exit(0 if same(product(x), expected) else 1)
            assert _status(child, seconds=20) == 0
    finally:
        done.set()
        worker.join()


@needs_native
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_a_fork_of_a_fork() -> None:
    product, x = native.Product(torch.ones(64, 8), None), torch.ones(1, 8)
    expected = product(x)
    child = os.fork()
    if child == 0:
        first = same(product(x), expected)
        grandchild = os.fork()
        if grandchild == 0:
            os._exit(0 if same(product(x), expected) else 1)
        os._exit(0 if first and _status(grandchild, seconds=20) == 0 else 1)
    assert _status(child, seconds=40) == 0


def _status(child: int, seconds: float) -> int | None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


@needs_native
def test_a_program_ends() -> None:
    code = (
        "import torch; from paceline import native; torch.set_num_threads(3);"
        "print(native.Product(torch.ones(64, 8), None)(torch.ones(1, 8)).sum().item())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "512.0\n", "")
