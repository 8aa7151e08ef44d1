"""How much memory decoding takes: the weights of its models, and what its tensors hold at most beside them.

Counts what torch hands out, so the figures are the same in every run. Knows nothing of methods.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

__all__ = ["TensorMemory", "weight_bytes"]


def weight_bytes(models: Iterable[nn.Module]) -> int:
    """Of all parameters, those that models share once; copies in another form, which a CPU may want, not counted."""
    return sum({id(each): each.nbytes for model in models for each in model.parameters()}.values())


class TensorMemory(TorchFunctionMode):
    """Inside the block, counts the memory of the tensors that are made there, from when they appear until they go.

    Sees the result of every call of torch, and not what a call needs for itself meanwhile.

    Attributes:
        peak_bytes: the most that lived at once.
    """

    def __init__(self) -> None:
        super().__init__()
        self.peak_bytes: int = 0
        self._bytes = 0
        self._living: dict[int, int] = {}

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        made = _storages(found)
        fresh = made.keys() - self._living.keys()
        for key in fresh - _storages((args, kwargs)).keys() if fresh else ():  # a view of weights is not made here
            self._born(key, made[key])
        return found

    def _born(self, key: int, storage: torch.UntypedStorage) -> None:
        self._living[key] = storage.nbytes()
        self._bytes += storage.nbytes()
        self.peak_bytes = max(self.peak_bytes, self._bytes)
        weakref.finalize(storage, self._gone, key)

    def _gone(self, key: int) -> None:
        self._bytes -= self._living.pop(key)


def _storages(value: Any) -> dict[int, torch.UntypedStorage]:
    """The memory of all tensors in a value, by its address; packed weights show none."""
    tensors = (leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.layout is torch.strided)
    return {storage._cdata: storage for storage in (tensor.untyped_storage() for tensor in tensors)}
