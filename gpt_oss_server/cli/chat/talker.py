"""The contract between the chat and the model that answers; and the one here: a server without HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.cli.terminal.console import introduction
from gpt_oss_server.errors import ApiError

if TYPE_CHECKING:
    from gpt_oss_server.apis.responses.service import ResponsesService

Item = dict[str, Any]
Event = Mapping[str, Any]


class CannotAnswer(Exception):
    """There is no answer to this request. The message is a sentence for the user."""


class Talker(Protocol):
    @property
    def introduction(self) -> str:
        """The model's name and what it is."""

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        """Shows the events of one response and returns it; Ctrl-C stops the model. Raises CannotAnswer."""

    def close(self) -> None: ...


class LocalTalker:
    """All turns share the runner's event loop, and Ctrl-C cancels the turn and not the chat."""

    def __init__(self, service: ResponsesService, runner: asyncio.Runner) -> None:
        self._service = service
        self._runner = runner
        info = service.served.models.first.info
        self.introduction = introduction(info.name, info.description)

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        try:
            return self._runner.run(self._turn(body, show))
        except ApiError as error:
            raise CannotAnswer(error.message) from error

    def close(self) -> None:
        """Closes the tools' kernels too, in the loop that started them."""
        self._runner.run(self._service.close())

    async def _turn(self, body: Item, show: Callable[[Event], None]) -> Item:
        run = await self._service.start(LOCAL, body)
        async with aclosing(run.events()) as batches:  # closing stops the model, on Ctrl-C too
            async for batch in batches:
                for event in batch:
                    show(event)
        return run.response
