"""Continues background responses whose process has stopped, and shows that this process lives.

Takes the runs that no process holds any more. Builds each again, lets it repeat what it did before, silently,
and drives it on. A run that cannot be built, or that was tried too often, ends as failed.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.errors import ApiError, RunInterrupted, StoreUnavailable
from gpt_oss_server.runs.background.runs import BackgroundRuns
from gpt_oss_server.stores.events import Claimed
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.sql.events import EventLogs

_LOOK_SECONDS = 0.5  # between looks for runs to continue or to cancel
_log = logging.getLogger(__name__)
Build = Callable[[Claimed], Awaitable[Run]]


class Takeover:
    def __init__(
        self,
        background: BackgroundRuns[Run],
        claims: EventLogs,
        build: Build,
        fail: Callable[[Claimed, ApiError], Awaitable[None]],
        *,
        lease: float,
    ) -> None:
        """`build` makes the run again; `fail` ends one that cannot be built."""
        self._background = background
        self._claims = claims
        self._build = build
        self._fail = fail
        self._renew_every = lease / 3
        self._renewed = 0.0
        self.claims_more = True
        self._stopping: set[asyncio.Task[None]] = set()
        self._repeated = Repeated(
            self.look, _LOOK_SECONDS, "Background responses of other servers cannot be continued"
        )

    def start(self) -> None:
        self._repeated.start()

    async def close(self) -> None:
        await self._repeated.close()

    async def look(self) -> None:
        """Renews the leases, cancels what should be, and continues every run that it can claim, if it may."""
        now = asyncio.get_running_loop().time()
        if not self._renewed or now - self._renewed > self._renew_every:
            await self._claims.renew()
            self._renewed = now
        for run_id in await self._claims.cancelled():
            task = asyncio.create_task(self._background.stop_here(run_id))
            self._stopping.add(task)
            task.add_done_callback(self._stopping.discard)
        while self._may_claim and (claimed := await self._claims.claim()) is not None:
            await self._continue(claimed)

    @property
    def _may_claim(self) -> bool:
        return self.claims_more and self._background.has_room

    async def _continue(self, claimed: Claimed) -> None:
        try:
            run = await self._build(claimed)
        except StoreUnavailable:
            await self._claims.give_back(claimed.run_id)
            raise
        except Exception as error:
            _log.error("The background response %s cannot be continued.", claimed.run_id, exc_info=error)
            why = error.message if isinstance(error, ApiError) else "The server's log says why."
            await self._fail(
                claimed, RunInterrupted(f"The response was interrupted and cannot be continued. {why}")
            )
            return
        _log.info("Continuing the background response %s, attempt %d.", claimed.run_id, claimed.attempts)
        self._background.go_on(run, claimed)
