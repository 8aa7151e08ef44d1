"""Paceline: decode language models many tokens at a time, with output identical to plain decoding.

Names are imported when they are first used, so that `import paceline` and the command line stay fast.
"""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from paceline.async_llm import AsyncLLM
    from paceline.completion import Chunk, Completion, Stats, Usage
    from paceline.errors import PacelineError
    from paceline.llm import LLM
    from paceline.request import Infill, Sampling

__all__ = [
    "LLM",
    "AsyncLLM",
    "Chunk",
    "Completion",
    "Infill",
    "PacelineError",
    "Sampling",
    "Stats",
    "Usage",
    "__version__",
]

__version__ = "0.1.0"

_HOMES = {
    "AsyncLLM": "paceline.async_llm",
    "LLM": "paceline.llm",
    "PacelineError": "paceline.errors",
    **dict.fromkeys(("Infill", "Sampling"), "paceline.request"),
    **dict.fromkeys(("Chunk", "Completion", "Stats", "Usage"), "paceline.completion"),
}


# Threads of torch spin for 8 ms after their last work, on the processors that the native pass then waits for: measured
# 7.4 instead of 1.7 ms for one row. 4,000 turns are some 0.1 ms, and no slower in torch. Read when torch is imported.
if not {"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"} & os.environ.keys():
    os.environ["GOMP_SPINCOUNT"] = "4000"


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module 'paceline' has no attribute {name!r}")
    return getattr(importlib.import_module(_HOMES[name]), name)
