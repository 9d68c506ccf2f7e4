"""Keys and values: the memory of all layers in blocks, and a memory for one sequence alone."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.ops.pages import BLOCK_SIZE, Pages, alone


class PagedMemory:
    """Keys and values of each layer, blocks × size × K × D (inference/ops/pages.py)."""

    def __init__(
        self,
        config: ModelConfig,
        blocks: Sequence[int],
        block_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        """`blocks`: the number for each of the config's `windows`, including block 0, which is unused."""
        self.block_size = block_size
        shapes = [(config.kv_heads, count, block_size, config.head_dim) for count in blocks]
        self.layers = [
            tuple(empty_blocks(shapes[config.kind(layer)], device, dtype) for _ in range(2))
            for layer in range(config.layers)
        ]
        self._device, self._stream = device, None
        if device.type == "cuda":
            self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        # For each kind of layer, K × blocks × size × bytes, as `empty_blocks` has it in memory.
        self._parts: list[list[Tensor]] = [[] for _ in blocks]
        for layer, parts in enumerate(self.layers):
            own = [part.permute(2, 0, 1, 3).view(torch.uint8) for part in parts]
            self._parts[config.kind(layer)] += own

    @property
    def block_bytes(self) -> list[int]:
        """The bytes of one block, for each kind of layer."""
        return [sum(part.nbytes // part.shape[1] for part in parts) for parts in self._parts]

    @torch.inference_mode()
    def contents(self, kind: int, blocks: Sequence[int]) -> Any:
        """A NumPy row of bytes for each. A thread may copy alongside steps: it waits for its copies alone."""
        parts, chosen = self._parts[kind], torch.tensor(blocks)
        heads, _, size, dims = parts[0].shape
        with torch.cuda.stream(self._stream):
            chosen = chosen.to(self._device)
            shape = (len(blocks), len(parts), heads, size, dims)
            found = torch.empty(shape, dtype=torch.uint8, device=self._device)
            for at, part in enumerate(parts):
                found[:, at] = part.index_select(1, chosen).transpose(0, 1)
            return found.cpu().flatten(1).numpy()

    @torch.inference_mode()
    def fill(self, kind: int, blocks: Sequence[int], contents: Any) -> None:
        """Writes rows that `contents` returned into blocks that no step reads or writes meanwhile."""
        parts, chosen = self._parts[kind], torch.tensor(blocks)
        heads, _, size, dims = parts[0].shape
        if self._stream is not None:  # a step of a sequence that has ended may still write to them
            self._stream.wait_stream(torch.cuda.default_stream(self._device))
        with torch.cuda.stream(self._stream):
            rows = torch.from_numpy(contents).to(self._device)
            rows, chosen = rows.view(len(blocks), len(parts), heads, size, dims), chosen.to(self._device)
            for at, part in enumerate(parts):
                part.index_copy_(1, chosen, rows[:, at].transpose(0, 1))
        if self._stream is not None:
            self._stream.synchronize()


def empty_blocks(shape: tuple[int, int, int, int], device: torch.device, dtype: torch.dtype) -> Tensor:
    """Blocks × size × K × D for a shape of K × blocks × size × D. A head's keys are adjacent, as one matrix.
    Pages that were never written take no memory of the machine, so a plan may be generous."""
    return torch.empty(shape, device=device, dtype=dtype).permute(1, 2, 0, 3)


class KVCache:
    """The memory of one sequence, which keeps everything. It holds `length` positions."""

    def __init__(self, config: ModelConfig, device: torch.device, dtype: torch.dtype, most: int) -> None:
        self.length = 0
        self._config, self._device = config, device
        blocks = [1 - (-most // BLOCK_SIZE)] * len(config.windows)
        self.memory = PagedMemory(config, blocks, BLOCK_SIZE, device, dtype)

    def pages(self, count: int) -> tuple[Pages, ...]:
        """The pages for `count` new tokens, one for each kind of layer."""
        size, length = self.memory.block_size, self.length + count
        table = torch.arange(1, -(-length // size) + 1, dtype=torch.int32, device=self._device)
        return tuple(alone(length, count, table, window, size) for window in self._config.windows)
