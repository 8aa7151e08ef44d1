"""Which checkpoints a benchmark measures: those it was given, or inflated copies of them.

Copies are whole checkpoints in a temporary folder, so that other programs measure the very same weights.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from paceline.bench.kernel_options import KernelBench
from paceline.bench.options import Workload
from paceline.models.inflate import inflate_drafter, inflate_transformer
from paceline.models.load import load_drafter, load_transformer
from paceline.models.resolve import resolve
from paceline.models.save import save_drafter, save_transformer
from paceline.zoo.catalog import BUNDLED_DRAFTER, BUNDLED_TARGET, bundled_folder

__all__ = ["measured_pair"]


@contextmanager
def measured_pair(options: Workload | KernelBench) -> Iterator[tuple[str | Path, str | Path | None]]:
    """The target and the drafter to load, the bundled pair where none is named."""
    model, drafter = options.model or BUNDLED_TARGET, options.drafter
    if drafter is None and resolve(model) == bundled_folder(BUNDLED_TARGET):
        drafter = BUNDLED_DRAFTER
    if options.inflate == 1:
        yield model, drafter
        return
    folders = resolve(model), None if drafter is None else resolve(drafter, "drafter")
    with TemporaryDirectory(prefix="paceline-") as place:
        yield _inflated(*folders, options.inflate, Path(place))


def _inflated(folder: Path, drafter: Path | None, factor: int, place: Path) -> tuple[Path, Path | None]:
    target = load_transformer(folder, torch.float32, trainable=True)
    wide = inflate_transformer(target, factor)
    save_transformer(wide, place / "target", torch.float32)
    for file in folder.iterdir():  # the tokenizer, and what else is read beside the weights
        weights = file.name.endswith((".safetensors", ".safetensors.index.json"))
        if file.is_file() and not weights and not (place / "target" / file.name).exists():
            shutil.copyfile(file, place / "target" / file.name)
    if drafter is None:
        return place / "target", None
    module = load_drafter(drafter, target, torch.float32, trainable=True)
    save_drafter(inflate_drafter(module, wide, factor), place / "drafter", torch.float32)
    return place / "target", place / "drafter"
