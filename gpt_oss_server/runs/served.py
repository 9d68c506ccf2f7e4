"""The parts that all APIs share: the engine and its names, the settings, tools, store and counters.

Takes an engine and settings. Returns a `Served`, which each API's service and each run holds. It must not
know any API.
"""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from datetime import datetime

from gpt_oss_server.caller.access import ACCESS, MCP, owner
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.caller.limiter import Limiter
from gpt_oss_server.constraints.binding import Binding, bind, make_ready
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.errors import ModelNotServed, RateLimitExceeded, from_inference
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from gpt_oss_server.harmony.render import CallForm, Renderer
from gpt_oss_server.http.fields import Body
from gpt_oss_server.http.unknown_fields import header_of, treat_unknown_fields
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.items.requested import RequestTools
from gpt_oss_server.items.table import BY_NAMESPACE
from gpt_oss_server.runs.counters import Counters
from gpt_oss_server.runs.debugging import allows_debugging
from gpt_oss_server.runs.observed import Api, ObservedRun, RunObserver
from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.completions import Completions
from gpt_oss_server.stores.keep import Stores
from gpt_oss_server.stores.kinds.table import stores_of
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.toolset.bind import bind_tools
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.offered import Toolset, ToolsetMaker
from gpt_oss_server.traces.records import Traces
from gpt_oss_server.turns.plan import TurnLimits, turn_limits
from inference.engine import Engine, InferenceError, Shared

ANY_MODEL = "*"
_UNHURRIED = 2.0  # seconds
_MOST_CHOICES = 128
_DEFAULT_CONCURRENT = 32  # without --max-concurrent


def keyring_of(settings: Settings) -> Keyring:
    """Raises `SettingsError` for a file of keys that cannot be used."""
    return Keyring(settings, (*BY_NAMESPACE, MCP))


class Served:
    def __init__(
        self,
        engine: Engine,
        settings: Settings | None = None,
        *,
        store: Store | None = None,
        stores: Stores | None = None,
        ids: Ids = random_ids,
        clock: Callable[[], float] = time.time,
        encoding: Encoding | None = None,
        tools: ToolsetMaker | None = None,
        keys: Keyring | None = None,
    ) -> None:
        self.engine = engine
        self.settings = settings or Settings()
        self.stores = stores or stores_of(self.settings, store)
        self.keys = keyring_of(self.settings) if keys is None else keys
        self.limiter = Limiter(self.settings, self.stores.allowances, has_keys=not self.keys.is_open)
        self.counters = Counters()
        self.observers: list[RunObserver] = []
        allowed, most = allows_debugging(self.settings), self.settings.trace_max_bytes
        self.traces = Traces(enabled=allowed, most_bytes=most)
        self.encoding = encoding or load_encoding()
        self.renderer = Renderer(self.encoding, call_form=CallForm(self.settings.call_form.replace("-", "_")))
        self.ids = ids
        self.clock = clock
        self._tools = tools
        self._stopped = False

    @property
    def store(self) -> Store:
        """The stored responses and conversations of the owner that this task works for."""
        return self.stores.responses.of(whose) if (whose := owner()) else self.stores.responses

    @property
    def completions(self) -> Completions:
        """The stored chat completions of the owner that this task works for."""
        return self.stores.completions.of(whose) if (whose := owner()) else self.stores.completions

    @property
    def sealer(self) -> Sealer:
        """Seals data that clients keep for this server; another owner's client cannot use it."""
        return self.stores.sealer.of(owner())

    def for_run(self, *, engine: Engine, ids: Ids, clock: Callable[[], float]) -> Served:
        """The same parts for one run, which has its own engine, ids and clock."""
        served = copy.copy(self)
        served.engine, served.ids, served.clock = engine, ids, clock
        return served

    @property
    def model_names(self) -> list[str]:
        """The listed names: the engine's own first, then the operator's."""
        names = [self.engine.info.name, *self.settings.served_model_name]
        return [name for name in dict.fromkeys(names) if name != ANY_MODEL]

    @property
    def turn_limits(self) -> TurnLimits:
        return turn_limits(self.engine.info, self.settings)

    def check_model(self, name: str) -> None:
        if name not in self.model_names and ANY_MODEL not in self.settings.served_model_name:
            raise ModelNotServed(
                f"The model {name!r} is not served here. Served: {', '.join(self.model_names)}. "
                "Leave `model` out for the default, or start the server with --served-model-name.",
                param="model",
            )

    def treat_unknown_fields(self, body: object, model: type[Body]) -> None:
        """Refuse or log fields that no part of this server knows, as the operator wants."""
        treat_unknown_fields(body, model, self.settings.unknown_fields)

    def headers_for(self, body: object, model: type[Body]) -> dict[str, str]:
        """The answer's header that names a request's unknown fields, if it has any."""
        return header_of(body, model, self.settings.unknown_fields)

    def observed(self, api: Api, run_id: str, model: str | None, *, outlives: bool = False) -> ObservedRun:
        """A run of this server, for its counters and observers."""
        model = model or self.model_names[0]
        return ObservedRun(api, run_id, model, self.counters, self.observers, outlives=outlives)

    def check_room(self) -> None:
        """Refuse a request before any work if the engine would refuse it.

        Later, the error could only be sent inside a stream.
        """
        if isinstance(self.engine, Shared):
            try:
                self.engine.check_room()
            except InferenceError as error:
                raise from_inference(error) from error

    async def check_stored(self) -> None:
        """Refuse to store more for a key that has as much in the store as it may."""
        most = ACCESS.get().limits.stored
        if most is None:
            return
        used = await self.store.used_bytes() + await self.completions.used_bytes()
        if used >= most:
            raise RateLimitExceeded(
                f"This API key has {used:,} bytes in the store, and may have {most:,}. Delete responses, "
                "conversations or chat completions, or send `store: false`.",
                param="store",
            )

    @property
    def parallel_choices(self) -> int:
        """How many choices of one request run simultaneously, so that many prompts leave room for others."""
        room = (self.settings.max_concurrent or _DEFAULT_CONCURRENT) + self.settings.max_waiting
        return min(_MOST_CHOICES, room)

    def engine_counters(self) -> dict[str, float]:
        """The engine's measures, if it has any."""
        return dict(self.engine.measures()) if isinstance(self.engine, Shared) else {}

    def date(self) -> str:
        """Today's date in the format of Harmony's system message."""
        return datetime.fromtimestamp(self.clock()).strftime("%Y-%m-%d")

    async def toolset(self) -> Toolset:
        return await self._tools.ready() if self._tools is not None else Toolset()

    @asynccontextmanager
    async def tools_for(
        self, tools: RequestTools, *, limit: int | None, conversation: str = ""
    ) -> AsyncGenerator[HostedTools, None]:
        """The built-in tools of a request. If the block raises, they are closed."""
        hosted = await bind_tools(tools, self.toolset, self.ids)
        hosted.conversation, hosted.limit = conversation, limit
        try:
            yield hosted
        except BaseException:
            await hosted.close(keeps_conversation=True)
            raise

    def tool_counters(self) -> dict[str, dict[str, float]]:
        """Calls, failures, time-outs and seconds of each tool since the server started."""
        made = self._tools.made if self._tools is not None else None
        return {name: asdict(each) for name, each in made.toolbox.counters.items()} if made else {}

    def tool_sessions(self) -> dict[str, int]:
        """The number of conversations that hold state of each tool."""
        made = self._tools.made if self._tools is not None else None
        return dict(made.toolbox.sessions) if made else {}

    def make_ready(self) -> None:
        """Start work for which the first request would otherwise wait.

        Engines that enforce no grammar need it for the first schema alone, so it may wait a little.
        """
        make_ready(self.encoding, after=0.0 if self.engine.info.enforces_grammar else _UNHURRIED)

    async def bound(self, wanted: Wanted, *, by_grammar: bool = True) -> Binding:
        """How this engine binds a turn to the form that the request requires."""
        info = self.engine.info
        enforces = by_grammar and info.enforces_grammar
        notation = info.notation if by_grammar else None
        if not wanted.binds and not enforces and notation is None:
            return Binding()
        guides = self.settings.guide_arguments
        return await asyncio.to_thread(
            bind, wanted, self.encoding, enforces=enforces, guides=guides, notation=notation
        )

    async def stop(self) -> None:
        """Close the tools and the engine; running generations then end by themselves."""
        if self._stopped:
            return
        self._stopped = True
        if self._tools is not None:
            await self._tools.close()
        await self.engine.close()

    async def close(self) -> None:
        """Close the resources that runs need until they end. Call `stop` first."""
        if self._tools is not None:
            await self._tools.wait_closed()
        await self.limiter.close()
        await self.stores.close()
