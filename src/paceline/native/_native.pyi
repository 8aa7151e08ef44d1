"""Types of the extension: source/module.cpp."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

def instruction_sets() -> list[str]: ...
def trim() -> None: ...

class Pool:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Linear:
    def __init__(self, pool: Pool, instructions: str, weight: Tensor, bias: Tensor | None, group: int) -> None: ...
    def multiply(self, x: NDArray[Any], y: NDArray[Any]) -> None: ...
    @property
    def nbytes(self) -> int: ...

class Drawing:
    def __init__(self, pool: Pool, instructions: str) -> None: ...
    def choose(self, scores: NDArray[Any], noise: float, keys: Sequence[int], ids: NDArray[Any]) -> None: ...
    def rank(
        self,
        scores: NDArray[Any],
        scale: float,
        noise: float,
        keys: Sequence[int],
        ids: NDArray[Any],
        log_probs: NDArray[Any],
    ) -> bool: ...

def grow(
    ids: NDArray[Any], log_probs: NDArray[Any], nodes: int, candidates: int, most: float
) -> tuple[list[int], list[int], list[float]]: ...

class Layer:
    def __init__(
        self,
        attention_norm: Tensor,
        mlp_norm: Tensor,
        query_norm: Tensor | None,
        key_norm: Tensor | None,
        qkv: Tensor,
        out: Tensor,
        gate_up: Tensor,
        down: Tensor,
        qkv_bias: Tensor | None,
        out_bias: Tensor | None,
        gate_up_bias: Tensor | None,
        down_bias: Tensor | None,
    ) -> None: ...

class Network:
    def __init__(
        self,
        pool: Pool,
        instructions: str,
        sizes: tuple[int, int, int, int],
        eps: float,
        norm: Tensor,
        layers: int,
        group: int,
    ) -> None: ...
    def add(self, layer: Layer) -> None: ...
    def run(
        self,
        x: NDArray[Any],
        cos: NDArray[Any],
        sin: NDArray[Any],
        segments: Sequence[tuple[NDArray[Any], int, int, Sequence[int] | None]],
        causal: Sequence[bool],
        windows: Sequence[int | None],
        taps: Sequence[int],
        hidden: NDArray[Any],
        features: NDArray[Any] | None,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
