"""Keys and values by position, without caches and without a fused kernel: what the oracles of diffusion attend with."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from paceline.models.transformer import Transformer


class Rows:
    """Keys and values by position, as their last computation left them."""

    def __init__(self, model: Transformer, length: int) -> None:
        spec = model.spec
        self.model = model
        self.kept = torch.zeros(spec.num_layers, 2, length, spec.num_kv_heads, spec.head_dim, dtype=torch.float64)

    def logits(self, tokens: list[int], computed: Sequence[int], seen: Sequence[int]) -> Tensor:
        """Logits of the rows in `computed`, which see the positions in `seen`."""
        where, visible = torch.tensor(computed), torch.tensor(seen)

        def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
            self.kept[layer, 0, where], self.kept[layer, 1, where] = keys, values
            groups = queries.shape[1] // keys.shape[1]
            k, v = (rows[visible].repeat_interleave(groups, 1) for rows in self.kept[layer])
            law = (torch.einsum("qhd,khd->hqk", queries, k) / queries.shape[2] ** 0.5).softmax(-1)
            return torch.einsum("hqk,khd->qhd", law, v).flatten(1)

        return self.model.head(self.model(torch.tensor(tokens)[where], where, attend).hidden)

    def logits_of_prefixes(self, tokens: list[int]) -> Tensor:
        """Logits of all rows of an autoregressive model: row i sees tokens[: i + 1]."""
        return torch.cat([self.logits(tokens, range(end), range(end))[-1:] for end in range(1, len(tokens) + 1)])
