"""What tables and pictures say of a result beside its figures: the models, their precision, the machine, its company.

Reads the plain data that benchmarks return, of older versions too. Prints and draws nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["caption", "company_notes", "machine_told", "measured_models", "picture_title", "told_dtypes"]

Result = Mapping[str, Any]


def picture_title(result: Result, promise: str, kept: bool) -> str:
    """Of a picture: what was measured, where, and whether a promise was kept."""
    settings, machine = result["settings"], result["machine"]
    dtypes = [told_dtypes(settings)] if "dtype" in settings else []  # a curve has several
    parts = (measured_models(settings), *dtypes, f"{machine['cores']} cores ({machine['cpu']})")
    return " · ".join([*parts, f"{promise}: {'yes' if kept else 'NO'}"])


def told_dtypes(settings: Result) -> str:
    """The precisions of a result, from its settings; older results know one only."""
    products, attention = settings["dtype"], settings.get("attention_dtype", settings["dtype"])
    return products if attention == products else f"{products} (attention and norms {attention})"


def measured_models(settings: Result) -> str:
    """The models of a result, from its settings."""
    models = " + ".join(Path(name).name for name in (settings["model"], settings["drafter"]) if name)
    factor = settings.get("inflate", 1)
    return f"{models} inflated {factor}× (same function, {factor**2}× the work)" if factor > 1 else models


def caption(result: Result) -> str:
    """On what was measured, and what else ran."""
    paired = f"one prompt at a time, {result['settings']['repeats']} paired repeats; {_ceilings(result['machine'])}"
    return f"{_processor(result)}; {paired}{_company(result)}"


def machine_told(result: Result) -> str:
    """On what was measured, and what else ran, without how."""
    return f"{_processor(result)}; {_company(result)}"


def company_notes(result: Result) -> list[str]:
    """A note where other programs disturbed the measurement."""
    busy = result["what_else_ran"]["busy_cores_elsewhere"] or 0.0
    if busy <= 0.25:
        return []
    return [f"Other programs kept {busy:.1f} cores busy: trust the ratios more than the times."]


def _processor(result: Result) -> str:
    machine = result["machine"]
    told = f"{machine['cpu']}, {machine['cores']} cores, {machine['threads']} threads, torch {machine['torch']}"
    if "native" not in machine:  # a result of an older version
        return told
    return f"{told}; native (on the CPU): {machine['native'].rstrip('.')}"


def _company(result: Result) -> str:
    busy = result["what_else_ran"]["busy_cores_elsewhere"]
    return f"other programs kept {'an unknown number of' if busy is None else f'{busy:.1f}'} cores busy"


def _ceilings(machine: Result) -> str:
    """The limits of the machine; nothing for a result of a version that did not measure them."""
    if "read_gigabytes_per_second" not in machine:
        return ""
    return (
        f"it reads {machine['read_gigabytes_per_second']:.0f} GB/s (read: share that the target's weights take), "
        f"multiplies {machine['float32_gigaflops']:.0f} GFLOP/s in float32 and "
        f"{machine['bfloat16_gigaflops']:.0f} in bfloat16; "
    )
