"""What all APIs share: the engine and its names, the settings, the tools, the store and the counters.

In: an engine and settings. Out: a `Served`, which each API's service and each run holds. It must not know
any API.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime
from functools import cached_property
from typing import TypeVar

from gpt_oss_server.constraints.binding import Binding, Wanted, bind, make_ready
from gpt_oss_server.errors import ModelNotServed, from_inference
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from gpt_oss_server.harmony.render import CallForm, Renderer
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.json_values import is_larger
from gpt_oss_server.serving.counters import Counters
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds import stores_of
from gpt_oss_server.stores.sealing import Sealer, server_sealer
from gpt_oss_server.tooling.bind import bind_tools
from gpt_oss_server.tooling.hosted import HostedTools
from gpt_oss_server.tooling.requested import RequestTools
from gpt_oss_server.tooling.toolset import Toolset, ToolsetMaker
from inference.engine import Engine, InferenceError, Shared

T = TypeVar("T")
ANY_MODEL = "*"
# Characters of a request as JSON, so that many small items and tools count too: 10,000 of them take 3 to 6 ms
# to render, be they one text, messages of one letter or declarations. More goes to a thread.
LARGE_INPUT = 10_000
_MOST_CHOICES = 128
_LEAST_AT_ONCE = 32  # where --max-concurrent sets no limit


async def beside_others(work: Callable[[], T], *of: object) -> T:
    """The result of `work` on these parts of a request; a large request does not delay the others."""
    return await asyncio.to_thread(work) if is_larger(LARGE_INPUT, *of) else work()


class Served:
    def __init__(
        self,
        engine: Engine,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        ids: Ids = random_ids,
        clock: Callable[[], float] = time.time,
        encoding: Encoding | None = None,
        tools: ToolsetMaker | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or Settings()
        self.stores = stores_of(self.settings, store)
        self.store = self.stores.responses
        self.counters = Counters()
        self.encoding = encoding or load_encoding()
        self.renderer = Renderer(self.encoding, call_form=CallForm(self.settings.call_form.replace("-", "_")))
        self.ids = ids
        self.clock = clock
        self._tools = tools
        if self.settings.sealing_key_file is not None:
            self.sealer  # noqa: B018 – a key file that cannot be used must fail at the start

    @cached_property
    def sealer(self) -> Sealer:
        """Seals what clients keep for this server; its key is read at first use."""
        return server_sealer(self.settings.sealing_key_file)

    @property
    def model_names(self) -> list[str]:
        """The names that are listed: the engine's own first, then the operator's."""
        names = [self.engine.info.name, *self.settings.served_model_name]
        return [name for name in dict.fromkeys(names) if name != ANY_MODEL]

    def check_model(self, name: str) -> None:
        if name not in self.model_names and ANY_MODEL not in self.settings.served_model_name:
            raise ModelNotServed(
                f"The model {name!r} is not served here. Served: {', '.join(self.model_names)}. "
                "Leave `model` out for the default, or start the server with --served-model-name.",
                param="model",
            )

    def check_room(self) -> None:
        """Refuse a request before any work, where the engine would refuse it.

        Later the error could only come inside a stream that has begun.
        """
        if isinstance(self.engine, Shared):
            try:
                self.engine.check_room()
            except InferenceError as error:
                raise from_inference(error) from error

    @property
    def choices_at_once(self) -> int:
        """How many choices of one request run at once, so that a thousand prompts leave room for others."""
        room = (self.settings.max_concurrent or _LEAST_AT_ONCE) + self.settings.max_waiting
        return min(_MOST_CHOICES, room)

    def engine_counters(self) -> dict[str, float]:
        """The engine's measures, where it has any."""
        return dict(self.engine.measures()) if isinstance(self.engine, Shared) else {}

    def date(self) -> str:
        """Today, as Harmony's system message has it."""
        return datetime.fromtimestamp(self.clock()).strftime("%Y-%m-%d")

    async def toolset(self) -> Toolset:
        return await self._tools.ready() if self._tools is not None else Toolset()

    @asynccontextmanager
    async def tools_for(
        self, tools: RequestTools, *, limit: int | None, conversation: str = ""
    ) -> AsyncGenerator[HostedTools, None]:
        """The built-in tools of a request; closed if the request is refused after all."""
        hosted = await bind_tools(tools, self.toolset, self.ids)
        hosted.conversation, hosted.limit = conversation, limit
        try:
            yield hosted
        except BaseException:
            await hosted.close(keeps_conversation=True)
            raise

    def tool_counters(self) -> dict[str, dict[str, float]]:
        """Calls, failures, time-outs and seconds of each tool since the start."""
        made = self._tools.made if self._tools is not None else None
        return {name: asdict(each) for name, each in made.toolbox.counters.items()} if made else {}

    def make_ready(self) -> None:
        """Start the work that the first request would otherwise wait for."""
        if self.engine.info.enforces_grammar:
            make_ready(self.encoding)

    async def bound(self, wanted: Wanted, *, by_grammar: bool = True) -> Binding:
        """How this engine binds a turn to the form that a request requires."""
        enforces = by_grammar and self.engine.info.enforces_grammar
        if not wanted.binds and not enforces:
            return Binding()
        return await asyncio.to_thread(bind, wanted, self.encoding, enforces=enforces)

    async def stop(self) -> None:
        """Close the tools and the engine; what still generates then ends by itself."""
        if self._tools is not None:
            await self._tools.close()
        await self.engine.close()

    async def close(self) -> None:
        """Close what runs need until they have ended. Only after `stop`."""
        if self._tools is not None:
            await self._tools.wait_closed()
        await self.stores.close()
