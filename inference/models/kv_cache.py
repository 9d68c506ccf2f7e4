"""Keys and values of one sequence, layer by layer.

In go the keys and values of new positions, out come all that a query at the end may see. Sliding layers keep
a ring of the window's size, full layers a buffer that doubles. It computes nothing and knows no weights.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

import torch
from torch import Tensor

from inference.models.config import ModelConfig

FIRST_CAPACITY = 256

Seen = tuple[Tensor, Tensor, Tensor | None]  # keys K×L×D, values K×L×D, positions L; None: no mask needed


class KVCache:
    """One sequence. `length` positions are in it; the model advances it once a forward pass has succeeded."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype) -> None:
        self.length = 0
        self._layers: list[LayerCache] = []
        for layer in range(config.layers):
            window = config.window_of(layer)
            size = (config.kv_heads, window or FIRST_CAPACITY, config.head_dim)
            keys, values = (torch.empty(size, device=device, dtype=dtype) for _ in range(2))
            kind: type[LayerCache] = FullLayerCache if window is None else SlidingLayerCache
            self._layers.append(kind(keys, values))

    def __iter__(self) -> Iterator[LayerCache]:
        return iter(self._layers)

    @property
    def byte_size(self) -> int:
        return sum(layer.keys.nbytes + layer.values.nbytes for layer in self._layers)


class LayerCache(ABC):
    def __init__(self, keys: Tensor, values: Tensor) -> None:
        self.keys, self.values = keys, values

    @abstractmethod
    def extend(self, start: int, keys: Tensor, values: Tensor) -> Seen:
        """Adds keys and values (T×K×D) of positions from `start`; tells what queries there may see."""


class FullLayerCache(LayerCache):
    def extend(self, start: int, keys: Tensor, values: Tensor) -> Seen:
        end = start + len(keys)
        if end > self.keys.shape[1]:
            self._grow(start, end)
        self.keys[:, start:end] = keys.transpose(0, 1)
        self.values[:, start:end] = values.transpose(0, 1)
        positions = None if len(keys) == 1 else torch.arange(end, device=keys.device)
        return self.keys[:, :end], self.values[:, :end], positions

    def _grow(self, filled: int, needed: int) -> None:
        capacity = max(needed, 2 * self.keys.shape[1])
        for name in ("keys", "values"):
            old: Tensor = getattr(self, name)
            larger = old.new_empty(old.shape[0], capacity, old.shape[2])
            larger[:, :filled] = old[:, :filled]
            setattr(self, name, larger)


class SlidingLayerCache(LayerCache):
    """Position p lives in place p mod window, so that writing it drops the one that left the window."""

    def extend(self, start: int, keys: Tensor, values: Tensor) -> Seen:
        window, count = self.keys.shape[1], len(keys)
        if count == 1:
            self.keys[:, start % window] = keys[0]
            self.values[:, start % window] = values[0]
            filled = min(start + 1, window)
            return self.keys[:, :filled], self.values[:, :filled], None
        kept = min(start, window)
        seen = (
            torch.cat((self.keys[:, :kept], keys.transpose(0, 1)), 1),
            torch.cat((self.values[:, :kept], values.transpose(0, 1)), 1),
            torch.cat(
                (
                    self._positions(start, kept, keys.device),
                    torch.arange(start, start + count, device=keys.device),
                )
            ),
        )
        last = torch.arange(max(start, start + count - window), start + count, device=keys.device)
        self.keys[:, last % window] = keys[-len(last) :].transpose(0, 1)
        self.values[:, last % window] = values[-len(last) :].transpose(0, 1)
        return seen

    def _positions(self, start: int, kept: int, device: torch.device) -> Tensor:
        """What position each of the first `kept` places holds when `start` positions have been written."""
        newest = start - 1
        return newest - (newest - torch.arange(kept, device=device)) % self.keys.shape[1]
