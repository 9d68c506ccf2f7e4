"""What the application has: its models, settings, stores, tools, limits and observers.

Takes an engine and settings. Returns a `Served`, which each API's service holds and which knows nothing of a
request: `work` makes the values that one request is served by. It must not know an API.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import partial

from gpt_oss_server.caller.access import MCP, Access, allowed_names
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.caller.limiter import Limiter
from gpt_oss_server.errors import RateLimitExceeded
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.http.shared_fields import Moderation
from gpt_oss_server.ids import Ids, random_ids
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.models.model import Model
from gpt_oss_server.models.models import Models
from gpt_oss_server.runs.moderated import Judge, Moderated, judging_model
from gpt_oss_server.runs.observed import Api, Counters, ObservedRun, RunObserver
from gpt_oss_server.runs.webhooks import Webhooks
from gpt_oss_server.runs.work import Work
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.options import AUTO
from gpt_oss_server.stores.base import Store
from gpt_oss_server.stores.kinds.keep import Keep, Stores
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.toolset.offered import Toolset, ToolsetMaker
from gpt_oss_server.traces.records import Traces
from inference.engine import Engine
from tools.addresses import is_of_this_machine

_MOST_CHOICES = 128  # of one client's requests, that run simultaneously, besides the first of each
_ALL_CHOICES = 256  # of all clients
_DEFAULT_CONCURRENT = 32  # without --max-concurrent


def keyring_of(settings: Settings, kinds: Kinds, models: Sequence[str] | None = None) -> Keyring:
    """Raises `SettingsError` for a file of keys that cannot be used; without `models`, their names may."""
    return Keyring(settings, (*kinds.hosted, MCP), models)


def _within(access: Access, model: Model) -> Access:
    """The access of a key to a model."""
    return access.within(model.name, allowed_names(model.settings.tools))


class Served:
    def __init__(
        self,
        engine: Engine,
        settings: Settings | None = None,
        further: Mapping[str, Engine] | None = None,
        *,
        store: Store | None = None,
        stores: Stores | None = None,
        ids: Ids = random_ids,
        clock: Callable[[], float] = time.time,
        encoding: Encoding | None = None,
        tools: ToolsetMaker | None = None,
        keys: Keyring | None = None,
    ) -> None:
        """`further` are the engines of the models beside the first, by name. Raises `SettingsError`."""
        self.settings = settings or Settings()
        own = self.settings.by_model
        models = [Model.of(engine, self.settings, encoding)]
        for name, other in (further or {}).items():
            of_model = own.get(name) or replace(self.settings, served_model_name=())
            models.append(Model.of(other, of_model, encoding, title=name))
        self.models = Models(models)
        self.stores = stores or open_stores(self.settings, store)
        self.kinds = Kinds.of() if tools is None else tools.kinds
        self._check_tools()
        self.keys = keyring_of(self.settings, self.kinds, self.models.all_names) if keys is None else keys
        self.limiter = Limiter(self.settings, self.stores.allowances, has_keys=not self.keys.is_open)
        self.webhooks = Webhooks(self.settings, self.stores.webhooks, self.keys)
        self.counters = Counters()
        self.observers: list[RunObserver] = []
        self.judge: Judge | None = None  # the API of moderations sets it
        self.traces = Traces(
            enabled=allows_debugging(self.settings), most_bytes=self.settings.trace_max_bytes
        )
        self.ids = ids
        self.clock = clock
        self._tools = tools
        self._stopped = False
        self._choices: Counter[str] = Counter()  # at work, besides the first of each request, by client

    def _check_tools(self) -> None:
        known = {*self.kinds.hosted, MCP}
        for model in self.models.all:
            if unknown := (allowed_names(model.settings.tools) or frozenset()) - known:
                must = f"must be all, none, or names out of {', '.join(sorted(known))}"
                raise SettingsError(f"The tools of the model {model.name} {must}, not {min(unknown)!r}.")

    def start(self) -> None:
        """Begins what repeats until the end. Call it in the event loop."""
        self.keys.start()
        self.models.first.make_ready()
        self.stores.start()
        self.webhooks.start()

    def work(self, caller: Caller, model: str | None = None) -> Work:
        """Raises an `ApiError` for a model that is not served, or that the key may not use."""
        chosen = self.models.chosen(model, caller.access.models)
        return self._work(replace(caller, access=_within(caller.access, chosen)), chosen)

    def moderated(self, wanted: Moderation | None, given: object, caller: Caller) -> Moderated | None:
        """The moderation that a request wants of its own input, which it has `given`, and of its answer."""
        if wanted is None:
            return None
        model = judging_model(wanted.model, self.settings, "moderation")
        if self.judge is None:  # where prompts are shown, and nothing is generated
            return None
        return Moderated(partial(self.judge, caller, model), given, wanted.blocks)

    def stored_work(self, caller: Caller) -> Work:
        """The work of a request that samples nothing."""
        return self._work(caller, self.models.first)

    def _work(self, caller: Caller, model: Model) -> Work:
        return Work(caller, model, self.stores.of(caller.owner), self.kinds, self.ids, self.clock)

    def observed(
        self, api: Api, run_id: str, model: str | None, work: Work, *, outlives: bool = False
    ) -> ObservedRun:
        """A run of this server, for its counters and observers; `model` is the name in the request."""
        arrived = time.monotonic() if work.caller.arrived is None else work.caller.arrived
        return ObservedRun(
            api,
            run_id,
            model or work.model.name,
            work.model.name,
            self.counters,
            self.observers,
            arrived=arrived,
            outlives=outlives,
        )

    @contextmanager
    def parallel_choices(self, client: str, count: int) -> Iterator[int]:
        """How many of a request's choices run simultaneously, so that many leave room for others.

        Each costs the event loop time whenever it has a token, and when the client leaves. So a client's
        requests share a number of them, and none takes more than half of what is left.
        """
        room = (self.settings.max_concurrent or _DEFAULT_CONCURRENT) + self.settings.max_waiting
        own = min(_MOST_CHOICES, room) - 1 - self._choices[client]
        left = (_ALL_CHOICES - self._choices.total()) // 2
        more = max(0, min(count - 1, own, left))
        self._choices[client] += more
        try:
            yield 1 + more
        finally:
            self._choices[client] -= more
            if not self._choices[client]:
                del self._choices[client]

    async def toolset(self) -> Toolset:
        return await self._tools.ready() if self._tools is not None else Toolset()

    def tools_for(self, access: Access, model: Model) -> list[str] | None:
        """The types of the hosted tools that a key may declare; None while the server still makes them."""
        access = _within(access, model)
        made = self._tools.made if self._tools is not None else Toolset()
        if made is None:
            return None
        offered = {declaration.namespace for declaration in made.toolbox.declarations}
        usable = [name for name in self.kinds.hosted if name in offered and access.allows(name)]
        shown = [self.kinds.hosted[name].shown_types(here=name in made.local) for name in usable]
        return [kind for kinds in shown for kind in kinds]

    def tool_counters(self) -> dict[str, dict[str, float]]:
        """Calls, failures, time-outs and seconds of each tool since the server started."""
        made = self._tools.made if self._tools is not None else None
        return {name: asdict(tool) for name, tool in made.toolbox.counters.items()} if made else {}

    def tool_sessions(self) -> dict[str, int]:
        """The number of conversations that hold state of each tool."""
        made = self._tools.made if self._tools is not None else None
        return dict(made.toolbox.sessions) if made else {}

    async def stop(self) -> None:
        """Closes the tools and the engine; running generations then end by themselves."""
        if self._stopped:
            return
        self._stopped = True
        if self._tools is not None:
            await self._tools.close()
        await asyncio.gather(*(model.engine.close() for model in self.models.all))

    async def close(self) -> None:
        """Closes the resources that runs need until they end. Call `stop` first."""
        if self._tools is not None:
            await self._tools.wait_closed()
        await self.keys.close()
        await self.webhooks.close()
        await self.limiter.close()
        await self.stores.close()


async def check_stored(caller: Caller, keep: Keep) -> None:
    """Refuses to store more for a key that has as much in the store as it may."""
    most = caller.access.limits.stored
    if most is None:
        return
    used = await keep.used_bytes()
    if used >= most:
        raise RateLimitExceeded(
            f"This API key has {used:,} bytes in the store, and may have {most:,}. Delete responses, "
            "conversations or chat completions, or send `store: false`.",
            param="store",
        )


def allows_debugging(settings: Settings) -> bool:
    if settings.debug_api != AUTO:
        return settings.debug_api == "on"
    return is_of_this_machine(settings.host)
