"""A model as engines expect that give every second layer a window, whatever its own layers are.

Where two layers of one kind follow each other, or the first has no window, a layer of zeros is inserted. It
adds nothing to what passes through it. This module must not know what the tensors are written to.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from inference.config import ModelConfig
from inference.models.tensor_files import TensorSource

_LAYER = re.compile(r"(block|model\.layers)\.(\d+)\.")


def spread_layers(sliding_layers: Sequence[bool]) -> list[int | None]:
    """For each layer of the result, the layer of the model, or None for one of zeros."""
    places: list[int | None] = []
    for layer, slides in enumerate(sliding_layers):
        if slides != (len(places) % 2 == 0):
            places.append(None)
        places.append(layer)
    return places


def alternating(files: TensorSource, config: ModelConfig) -> tuple[TensorSource, ModelConfig]:
    """The same, if the layers alternate already."""
    places = spread_layers(config.sliding_layers)
    if None not in places:
        return files, config
    layers = len(places)
    slides = tuple(layer % 2 == 0 for layer in range(layers))
    return _Alternating(files, places), replace(config, layers=layers, sliding_layers=slides)


class _Alternating:
    """Implements `TensorSource`. A layer of zeros has the names, shapes and types of the first layer."""

    def __init__(self, files: TensorSource, places: Sequence[int | None]) -> None:
        self._files, self._places = files, places
        self.folder = files.folder

    def __contains__(self, name: str) -> bool:
        return self._source(name)[0] in self._files

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor:
        source, inserted = self._source(name)
        tensor = self._files.take(source, shape, bytes_only=bytes_only)
        return torch.zeros_like(tensor) if inserted else tensor

    def _source(self, name: str) -> tuple[str, bool]:
        """The tensor of the model that this one is, or looks like."""
        match = _LAYER.match(name)
        if match is None:
            return name, False
        layer = self._places[int(match[2])]
        return f"{match[1]}.{layer or 0}.{name[match.end() :]}", layer is None
