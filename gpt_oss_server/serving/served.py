"""What is served, whichever API asks: the engine, its names, the settings, the tools, and what is counted.

In: an engine and settings. Out: what every API's service stands upon. It must not know of any API.
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
_LEAST_AT_ONCE = 32  # that an engine generates for which was not told how many


async def beside_others(work: Callable[[], T], *of: object) -> T:
    """What `work` makes of these parts of a request; large ones do not hold up other requests."""
    return await asyncio.to_thread(work) if is_larger(LARGE_INPUT, *of) else work()


class Served:
    def __init__(
        self,
        engine: Engine,
        settings: Settings | None = None,
        *,
        ids: Ids = random_ids,
        clock: Callable[[], float] = time.time,
        encoding: Encoding | None = None,
        tools: ToolsetMaker | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or Settings()
        self.counters = Counters()
        self.encoding = encoding or load_encoding()
        self.renderer = Renderer(self.encoding, call_form=CallForm(self.settings.call_form.replace("-", "_")))
        self.ids = ids
        self.clock = clock
        self._tools = tools
        if self.settings.sealing_key_file is not None:
            self.sealer  # noqa: B018 – a file that cannot be used is told at the start

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
        """Turns a request away before anything is done for it, where the engine would.

        Later it could only be told inside a stream that has begun.
        """
        if isinstance(self.engine, Shared):
            try:
                self.engine.check_room()
            except InferenceError as error:
                raise from_inference(error) from error

    @property
    def choices_at_once(self) -> int:
        """How many choices of one request are under way: a thousand prompts turn nobody away."""
        room = (self.settings.max_concurrent or _LEAST_AT_ONCE) + self.settings.max_waiting
        return min(_MOST_CHOICES, room)

    def engine_counters(self) -> dict[str, float]:
        """What the engine counts, where it does."""
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
        """What a request asks for of the tools that run here; closed if it is refused after all."""
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
        """What the first request would wait for, without waiting for it."""
        if self.engine.info.enforces_grammar:
            make_ready(self.encoding)

    async def bound(self, wanted: Wanted, *, by_grammar: bool = True) -> Binding:
        """What a request's wishes for the form of a turn come to on this engine."""
        enforces = by_grammar and self.engine.info.enforces_grammar
        if not wanted.binds and not enforces:
            return Binding()
        return await asyncio.to_thread(bind, wanted, self.encoding, enforces=enforces)

    async def close(self) -> None:
        if self._tools is not None:
            await self._tools.close()
        await self.engine.close()
