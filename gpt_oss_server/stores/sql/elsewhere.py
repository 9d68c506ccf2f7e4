"""News of the runs of other processes, for readers of their logs.

A reader looks again at an announcement, after a while in case one was lost, and often where the database
carries none. Only runs with readers elsewhere are announced, because each announcement costs a lock.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from gpt_oss_server.stores.sql import runs
from gpt_oss_server.stores.sql.codec import key_of
from gpt_oss_server.stores.sql.database import Database

_LOOK_SECONDS = 0.1  # between looks without announcements
_HEARD_SECONDS = 1.0  # between looks where announcements arrive
_WATCH_SECONDS = 20.0  # for which announcements are made; a reader extends it after half of them


class Elsewhere:
    def __init__(self, database: Database) -> None:
        self.database = database
        self.news: dict[str, asyncio.Event] = {}  # by the key of a run that is read here
        self._readers: Counter[str] = Counter()

    def start(self, wake: Callable[[], None]) -> None:
        """`wake` is called where there may be runs to continue or to cancel. Call it in the event loop."""

        def hear(topic: str) -> None:
            if topic == runs.WORK:
                wake()
            elif (news := self.news.get(topic)) is not None:
                news.set()
                self.news[topic] = asyncio.Event()

        self.database.listen(hear)

    @contextmanager
    def reading(self, run_id: str) -> Iterator[Watched]:
        key = key_of(run_id)
        self.news.setdefault(key, asyncio.Event())
        self._readers[key] += 1
        try:
            yield Watched(self, run_id)
        finally:
            self._readers[key] -= 1
            if not self._readers[key]:
                del self._readers[key], self.news[key]


class Watched:
    """One reader's view of a run."""

    def __init__(self, elsewhere: Elsewhere, run_id: str) -> None:
        self._elsewhere = elsewhere
        self._run_id = run_id
        self._watched_at: float | None = None
        self.before_look()

    def before_look(self) -> None:
        """What is announced from now on ends the next wait."""
        self._news = self._elsewhere.news[key_of(self._run_id)]

    async def wait(self) -> None:
        """Returns when it is time to look again."""
        database = self._elsewhere.database
        if not database.hears:
            await asyncio.sleep(_LOOK_SECONDS)
            return
        now = asyncio.get_running_loop().time()
        if self._watched_at is None or now - self._watched_at > _WATCH_SECONDS / 2:
            self._watched_at = now
            await database.write(lambda tx: runs.watch(tx, self._run_id, _WATCH_SECONDS))
            return  # what came before was not announced
        with suppress(TimeoutError):
            await asyncio.wait_for(self._news.wait(), _HEARD_SECONDS)
