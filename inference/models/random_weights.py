"""Random weights of any shape, made on the device.

They pass through the loader, under the names of the Hugging Face layout, so that measurements equal those of
a checkpoint. They are never zero, and their scale keeps activations similar from layer to layer.
"""

import zlib
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.gpt_oss import GptOss, build_model
from inference.models.weights import AS_COMPUTED
from inference.options import Precision

# A 4-bit value has a root mean square of 2.9; times 2^-7 or 2^-8 that is about 1/√2880.
LEAST_SCALE, MOST_SCALE = 119, 121


class RandomTensors:
    """A checkpoint of the Hugging Face layout without files: the same name gives the same tensor."""

    folder = Path("random weights")

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def __contains__(self, name: str) -> bool:
        return name != "embedding.weight" and not name.endswith("gate_up_proj")

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor:
        draw = torch.Generator(self._device).manual_seed(zlib.crc32(name.encode()))
        if bytes_only:
            low, high = (LEAST_SCALE, MOST_SCALE) if name.endswith("scales") else (0, 256)
            return torch.randint(
                low, high, tuple(shape), generator=draw, device=self._device, dtype=torch.uint8
            )
        values = torch.randn(tuple(shape), generator=draw, device=self._device, dtype=torch.bfloat16)
        if "norm" in name:
            return 1 + 0.1 * values
        return values * (shape[1] ** -0.5 if len(shape) == 2 and "bias" not in name else 0.1)


def random_model(
    config: ModelConfig,
    device: torch.device,
    *,
    progress: bool | None = None,
    precision: Precision = AS_COMPUTED,
) -> GptOss:
    return build_model(RandomTensors(device), config, device, precision=precision, progress=progress)
