"""Types of the extension: source/module.cpp."""

from collections.abc import Sequence

from torch import Tensor

def instruction_sets() -> list[str]: ...

class Pool:
    def __init__(self, threads: int) -> None: ...
    @property
    def threads(self) -> int: ...

class Linear:
    def __init__(self, pool: Pool, instructions: str, weight: Tensor, bias: Tensor | None) -> None: ...
    def multiply(self, x: Tensor, y: Tensor) -> None: ...
    @property
    def nbytes(self) -> int: ...

class Drawing:
    def __init__(self, pool: Pool, instructions: str) -> None: ...
    def choose(self, scores: Tensor, noise: float, keys: Sequence[int], ids: Tensor) -> None: ...
    def rank(
        self, scores: Tensor, scale: float, noise: float, keys: Sequence[int], ids: Tensor, log_probs: Tensor
    ) -> bool: ...

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
        heads: int,
        kv_heads: int,
        head_dim: int,
        eps: float,
        layers: Sequence[Layer],
        norm: Tensor,
    ) -> None: ...
    def run(
        self,
        x: Tensor,
        cos: Tensor,
        sin: Tensor,
        segments: Sequence[tuple[Tensor, int, int, Sequence[int] | None]],
        causal: Sequence[bool],
        windows: Sequence[int | None],
        taps: Sequence[int],
        hidden: Tensor,
        features: Tensor | None,
    ) -> None: ...
    @property
    def nbytes(self) -> int: ...
