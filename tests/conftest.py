"""One thread, and property tests that try the same examples in every run."""

from __future__ import annotations

import sys
from pathlib import Path

import torch
from hypothesis import settings

sys.path.insert(0, str(Path(__file__).parent))  # tiny.py, scripted.py, tiny_tokenizers.py

torch.set_num_threads(1)

settings.register_profile("repeatable", derandomize=True, deadline=None, database=None)
settings.load_profile("repeatable")
