"""Several cores for what PyTorch does on one, and one core for what it would divide in vain.

Independent parts of a step run on threads side by side.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from typing import TypeVar

import torch

T = TypeVar("T")
R = TypeVar("R")


def on_cores(work: Callable[[T], R], parts: Sequence[T]) -> list[R]:
    """As many cores as PyTorch may use. An error of a part is raised when all have ended."""
    count = torch.get_num_threads()
    if count == 1 or len(parts) < 2:
        return [work(part) for part in parts]

    @torch.inference_mode()
    def run(part: T) -> R:
        return work(part)

    running = [_threads(count).submit(run, part) for part in parts]
    wait(running)
    return [done.result() for done in running]


@contextmanager
def one_core() -> Iterator[None]:
    """Work on this thread alone. PyTorch wakes its other threads for each product, however small it is."""
    count = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(count)


@cache
def _threads(count: int) -> ThreadPoolExecutor:
    threads = ThreadPoolExecutor(count, "cores", _be_one_core)
    list(threads.map(lambda _: None, range(count)))
    torch.set_num_threads(count)  # of this thread and later ones, which the new ones have set
    return threads


def _be_one_core() -> None:
    torch.get_num_threads()  # reads the number of all threads, once; without it the first operation would
    torch.set_num_threads(1)
