"""Types of the extension: source/python."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray
from torch import Tensor

from paceline.native.arithmetic import Arithmetic

def instruction_sets() -> list[str]: ...
def trim() -> None: ...

class Pool:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Linear:
    def __init__(
        self, pool: Pool, instructions: str, weight: Tensor, bias: Tensor | None, arithmetic: Arithmetic
    ) -> None: ...
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
        attention_base: Tensor | None,
        attention_projection: Tensor | None,
        mlp_base: Tensor | None,
        mlp_projection: Tensor | None,
    ) -> None: ...

_Batch = tuple[
    NDArray[Any],
    NDArray[Any],
    NDArray[Any],
    NDArray[Any],
    Sequence[tuple[NDArray[Any], int, int, Sequence[int] | None]],
    Sequence[bool],
    Sequence[int | None],
    Sequence[int],
    NDArray[Any] | None,
]
_Draws = tuple[Sequence[float], Sequence[float], Sequence[int], Sequence[int]]

class Network:
    def __init__(
        self,
        pool: Pool,
        instructions: str,
        sizes: tuple[int, int, int, int, int, int],
        eps: float,
        norm: Tensor,
        layers: int,
        arithmetic: Arithmetic,
        embedding: NDArray[Any],
        scale: float,
    ) -> None: ...
    def add(self, layer: Layer) -> None: ...
    def states(self, batch: _Batch, hidden: NDArray[Any]) -> None: ...
    def score(
        self,
        batch: _Batch,
        head: Linear,
        rows: Sequence[int],
        scores: NDArray[Any],
        hidden: NDArray[Any] | None,
    ) -> None: ...
    def choose(self, batch: _Batch, head: Linear, rows: Sequence[int], draws: _Draws) -> list[int]: ...
    def go_on(self, batch: tuple[Any, ...], head: Linear, draws: tuple[Any, ...], ends: Sequence[int]) -> list[int]: ...
    def rank(
        self,
        batch: _Batch,
        head: Linear,
        rows: Sequence[int],
        draws: _Draws,
        ids: NDArray[Any],
        log_probs: NDArray[Any],
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...

class Context:
    def __init__(
        self,
        pool: Pool,
        instructions: str,
        layers: int,
        kv_heads: int,
        eps: float,
        fc: Tensor,
        fc_bias: Tensor | None,
        norm: Tensor,
        key_value: Tensor,
        key_value_bias: Tensor | None,
        key_norms: Tensor,
        cos: NDArray[Any],
        sin: NDArray[Any],
        arithmetic: Arithmetic,
    ) -> None: ...
    def extend(self, unread: Sequence[tuple[Sequence[NDArray[Any]], NDArray[Any], int]]) -> None: ...
    @property
    def nbytes(self) -> int: ...
