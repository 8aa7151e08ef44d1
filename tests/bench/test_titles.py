"""What stands beside the figures of a result, of older versions too."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from paceline import native
from paceline.bench.machine import machine_facts
from paceline.bench.titles import caption, machine_told


def result(**machine: Any) -> dict[str, Any]:
    facts = {"cpu": "a processor", "cores": 2, "threads": 1, "torch": "2.13"} | machine
    return {"machine": facts, "settings": {"repeats": 3}, "what_else_ran": {"busy_cores_elsewhere": 0.0}}


def test_a_result_says_what_native_passes_use_or_why_there_are_none(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, used in (("avx2", "avx2"), ("PACELINE_NATIVE is off.", "PACELINE_NATIVE is off")):
        for told in (caption(result(native=said)), machine_told(result(native=said))):
            assert f"torch 2.13; native (on the CPU): {used}; " in told
    assert "native" not in caption(result()) + machine_told(result())
    monkeypatch.setenv(native.VARIABLE, "off")
    assert machine_facts(torch.device("cpu"))["native"] == "PACELINE_NATIVE is off."
