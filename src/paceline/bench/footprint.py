"""How much memory decoding takes: the weights of its models, and what its tensors hold at most beside them.

Counts what torch hands out, so the figures are the same in every run. Knows nothing of methods.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["TensorMemory", "weight_bytes"]


def weight_bytes(models: Iterable[nn.Module]) -> int:
    """Of all parameters, those that models share once; copies in another form, which a CPU may want, not counted."""
    return sum({id(each): each.nbytes for model in models for each in model.parameters()}.values())


class TensorMemory(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the storage that operations allocate while it is entered, for as long as it is alive.

    Sees the results of all parts of an operation, but not what a fused kernel needs for itself meanwhile.

    Attributes:
        peak_bytes: the most that was alive at once since the last `restart`.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.peak_bytes = 0
        self._alive: dict[int, tuple[Any, int]] = {}

    def restart(self) -> None:
        """Forget what was seen."""
        self.peak_bytes, self._alive = 0, {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """Run `func` by its parts where it has any, so that the scores of an unfused attention are seen, too."""
        with self:
            result = func.decompose(*args, **(kwargs or {}))
        if result is NotImplemented:
            result = func(*args, **(kwargs or {}))
            given = {storage._cdata for storage in _storages((args, kwargs))}
            self._count([storage for storage in _storages(result) if storage._cdata not in given])
        return result

    def _count(self, fresh: Sequence[torch.UntypedStorage]) -> None:
        self._alive = {key: alive for key, alive in self._alive.items() if not alive[0].expired()}
        for storage in fresh:
            self._alive[storage._cdata] = _weakly(storage), storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, sum(size for _, size in self._alive.values()))


def _weakly(storage: torch.UntypedStorage) -> Any:
    """What knows whether the storage is still alive, and does not keep it so."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _storages(tree: Any) -> list[torch.UntypedStorage]:
    """Of all tensors in it; packed weights show none."""
    leaves = (leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor) and leaf.layout is torch.strided)
    return [leaf.untyped_storage() for leaf in leaves]
