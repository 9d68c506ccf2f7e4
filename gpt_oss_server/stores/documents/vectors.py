"""Blocks of vectors as bytes, and the vectors of many blocks that are nearest to a query's. Pure.

Each number is one byte and each vector has its own scale, which costs less than a hundredth of a cosine. No
index: all vectors of a store are compared, as fast as they are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gpt_oss_server.embeddings import Vectors

_PLACE, _SCALE = np.dtype("<i8"), np.dtype("<f4")
_MOST = 127


def packed(places: Sequence[int], vectors: Vectors) -> bytes:
    """The passages' places, the scales, and the numbers of the vectors."""
    largest = np.abs(vectors).max(axis=1, keepdims=True)
    scales = np.where(largest == 0, 1, largest) / _MOST
    numbers = np.rint(vectors / scales).astype(np.int8)
    return np.array(places, _PLACE).tobytes() + scales.astype(_SCALE).tobytes() + numbers.tobytes()


def nearest(blocks: Iterable[bytes], queries: Vectors, most: int) -> list[list[tuple[int, float]]]:
    """For each query the passages of the greatest cosines, the best first."""
    width, turned = queries.shape[1], np.ascontiguousarray(queries.T)
    places, cosines = [np.empty(0, _PLACE)], [np.empty((0, len(queries)), np.float32)]
    for block in blocks:
        count = len(block) // (_PLACE.itemsize + _SCALE.itemsize + width)
        places.append(np.frombuffer(block, _PLACE, count))
        scales = np.frombuffer(block, _SCALE, count, count * _PLACE.itemsize)
        numbers = np.frombuffer(block, np.int8, offset=count * (_PLACE.itemsize + _SCALE.itemsize))
        cosines.append(numbers.reshape(count, width).astype(np.float32) @ turned * scales[:, None])
    all_places, all_cosines = np.concatenate(places), np.concatenate(cosines)
    found, few = [], min(most, len(all_places))
    for of_query in all_cosines.T:
        best = np.flatnonzero(of_query >= np.partition(of_query, -few)[-few]) if few else all_places
        best = best[np.argsort(-of_query[best], kind="stable")][:most]
        found.append([(int(all_places[at]), float(of_query[at])) for at in best])
    return found
