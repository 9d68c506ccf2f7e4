"""Figures of the stores' operations, named as in their protocols. It must not know how a store works."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, cast

from gpt_oss_server.observe.metrics import table
from gpt_oss_server.observe.metrics.figures import Figures
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.completions import Completions
from gpt_oss_server.stores.events import EventLogs
from gpt_oss_server.stores.keep import Stores


def measured(stores: Stores, figures: Figures) -> Stores:
    """The same stores. Claims are left out: a server looks for them all the time."""
    return replace(
        stores,
        responses=cast(Store, _Measured(stores.responses, "responses", figures)),
        events=cast(EventLogs, _Measured(stores.events, "events", figures)),
        completions=cast(Completions, _Measured(stores.completions, "completions", figures)),
    )


class _Measured:
    """Stands for a store. Anything but its operations is passed on as it is."""

    def __init__(self, store: object, name: str, figures: Figures) -> None:
        self._store = store
        self._name = name
        self._figures = figures

    def of(self, owner: str) -> _Measured:
        """The part of an owner counts for the same store. Only stores that have owners are asked."""
        return _Measured(cast(Any, self._store).of(owner), self._name, self._figures)

    def __getattr__(self, name: str) -> Any:
        part = getattr(self._store, name)
        if name.startswith("_") or not inspect.iscoroutinefunction(part):
            return part
        operation = self._measuring(name, part)
        setattr(self, name, operation)  # the next look finds it without this method
        return operation

    def _measuring(self, name: str, operate: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        figures, store = self._figures, self._name

        async def operation(*args: Any, **kwargs: Any) -> Any:
            began, outcome = time.monotonic(), "failed"
            try:
                result = await operate(*args, **kwargs)
                outcome = "done"
                return result
            finally:
                figures.add(table.STORE_OPERATIONS, labels=(store, name, outcome))
                figures.observe(table.STORE_SECONDS, time.monotonic() - began, (store,))

        return operation
