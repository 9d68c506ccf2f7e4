"""Reads tensors by name from a folder of memory-mapped safetensors files.

A tensor must have the shape that the caller expects. What it means is not known here.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import safetensors
from torch import Tensor

from inference.engine import CheckpointError

INDEX = "model.safetensors.index.json"
LFS_POINTER = b"version https://git-lfs"
FLOATS, BYTES, IDS = ("BF16", "F16", "F32", "F64"), ("U8",), ("I64", "I32")


class TensorSource(Protocol):
    """A source of a model's tensors, by the names of one of the layouts."""

    @property
    def folder(self) -> Path: ...

    def __contains__(self, name: str) -> bool: ...

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor: ...


class TensorFiles:
    """One model's tensors. The result of `take` stays in the mapped file until it is copied or converted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._file_of = _indexed(folder) if (folder / INDEX).is_file() else _scanned(folder)
        self._open: dict[Path, Any] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._file_of

    def take(self, name: str, shape: Sequence[int], *, bytes_only: bool = False) -> Tensor:
        """The tensor, which must have this shape and hold bytes (`bytes_only`) or floats."""
        return self._take(name, shape, BYTES if bytes_only else FLOATS)

    def take_ids(self, name: str, shape: Sequence[int]) -> Tensor:
        """The tensor, which must have this shape and hold whole numbers; returned as int64."""
        return self._take(name, shape, IDS).long()

    def _take(self, name: str, shape: Sequence[int], kinds: Sequence[str]) -> Tensor:
        if name not in self._file_of:
            raise CheckpointError(
                f"{self.folder}: the tensor {name!r} is missing. Either config.json requires more than the "
                "files hold, or a file is missing: compare the folder with its source, and download it again."
            )
        path = self._file_of[name]
        try:
            part = self._opened(path).get_slice(name)
            stored, kind = tuple(part.get_shape()), str(part.get_dtype())
        except (safetensors.SafetensorError, OSError) as error:
            raise CheckpointError(f"{path}: the tensor {name!r} cannot be read: {error}") from error
        if stored != tuple(shape):
            raise CheckpointError(
                f"{path}: the tensor {name!r} has shape {_spelt(stored)}, but config.json requires "
                f"{_spelt(shape)}. The config.json and the weights belong to different models."
            )
        if kind not in kinds:
            raise CheckpointError(
                f"{path}: the tensor {name!r} has the type {kind}; it must be {' or '.join(kinds)}."
            )
        tensor: Tensor = self._opened(path).get_tensor(name)
        return tensor

    def _opened(self, path: Path) -> Any:
        if path not in self._open:
            self._open[path] = _opened(path)
        return self._open[path]


def _opened(path: Path) -> Any:
    try:
        return safetensors.safe_open(str(path), framework="pt")  # type: ignore[no-untyped-call, unused-ignore]
    except FileNotFoundError as error:
        raise CheckpointError(
            f"{path} is missing, though {INDEX} names it. Download the checkpoint again."
        ) from error
    except (safetensors.SafetensorError, OSError) as error:
        if _is_pointer(path):
            raise CheckpointError(
                f"{path} is a Git LFS pointer, not the file itself. Run `git lfs pull` in its repository, or "
                "download the checkpoint without Git."
            ) from error
        raise CheckpointError(
            f"{path} is not a readable safetensors file ({error}). An interrupted download leaves such a "
            "file: delete it and download it again."
        ) from error


def _is_pointer(path: Path) -> bool:
    """Whether the file is a pointer, because the repository was cloned without Git LFS."""
    try:
        with path.open("rb") as file:
            return file.read(len(LFS_POINTER)) == LFS_POINTER
    except OSError:
        return False


def _indexed(folder: Path) -> dict[str, Path]:
    path = folder / INDEX
    try:
        weight_map = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        return {name: folder / file for name, file in weight_map.items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f'{path} is not an index of safetensors files (an object with "weight_map"): {error!r}'
        ) from error


def _scanned(folder: Path) -> dict[str, Path]:
    paths = sorted(folder.glob("*.safetensors"))
    if not paths:
        raise CheckpointError(f"{folder} has no .safetensors file. Weights in other formats are not read.")
    return {name: path for path in paths for name in _opened(path).keys()}  # noqa: SIM118 (not a mapping)


def _spelt(shape: Sequence[int]) -> str:
    return "×".join(str(size) for size in shape) or "()"
