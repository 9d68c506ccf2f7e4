"""The tools that a server offers: takes a call of the model, returns the model's input.

Routes a recipient (`browser.search`, `python`, `label.tool`) to its tool and runs it in the conversation's
session, within the tool's time limit. Every error becomes a failed output with a sentence; only cancellation
propagates, and cancels the work too. A request's own tools are in a toolbox whose parent is the server's, so
that closing it leaves the server's tools alone. It must not know the server, tokens, or what any tool does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import anyio

from tools.sessions import SessionLimits, SessionPool, TooManySessions
from tools.tool import (
    NOBODY,
    Client,
    Declaration,
    Session,
    Tool,
    ToolCall,
    ToolOutput,
    ToolUnavailable,
    bounded,
)

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0  # how long cancelled work may take to stop before it is abandoned
_MARGIN = 15.0  # seconds by which the time-out of an offer exceeds that of its tool


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool and its limits. `counted_as` keeps names that clients choose out of the metrics.

    `also`: further tools for the model that run in the same sessions.
    """

    tool: Tool
    timeout: float = 120.0
    sessions: SessionLimits = field(default_factory=SessionLimits)
    counted_as: str | None = None
    also: tuple[Declaration, ...] = ()

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        return (self.tool.declaration, *self.also)


def offer_of(
    tool: Tool,
    timeout: float,
    *,
    counted_as: str | None = None,
    sessions: SessionLimits | None = None,
    also: tuple[Declaration, ...] = (),
) -> Offer:
    """The offer of a tool with its own time-out: the toolbox waits longer, so the tool stops first."""
    return Offer(tool, timeout + _MARGIN, sessions or SessionLimits(), counted_as, also)


@dataclass(slots=True)
class ToolCounters:
    """The outcomes of one tool's calls. Time-outs count as failures too, cancelled calls as neither."""

    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    cancelled: int = 0
    seconds: float = 0.0


OnCall = Callable[[str, str, float], None]
"""Takes the tool, the outcome (`done`, `failed`, `timeout` or `cancelled`), and the seconds."""


class Toolbox:
    def __init__(
        self,
        offers: Iterable[Offer] = (),
        *,
        parent: Toolbox | None = None,
        clock: Callable[[], float] = time.monotonic,
        on_call: OnCall | None = None,
    ) -> None:
        """`on_call` is called after each call, here and in toolboxes whose parent this is."""
        self._offers: dict[str, Offer] = {}
        self._pools: dict[str, SessionPool] = {}
        self._clock = clock
        for offer in offers:
            namespace = offer.tool.declaration.namespace
            if namespace in self._offers:
                raise ValueError(f"Two tools are named {namespace!r}.")
            self._add(namespace, offer)
        self._parent = parent
        self._counters: dict[str, ToolCounters] = parent._counters if parent is not None else {}
        self._on_call: OnCall | None = on_call or (parent._on_call if parent is not None else None)
        self._running: set[asyncio.Task[object]] = set()
        self._closed = False

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """All declarations, the parent's first; a tool here hides the parent's tool of the same name."""
        above = self._parent.declarations if self._parent is not None else ()
        kept = tuple(tool for tool in above if tool.namespace not in self._offers)
        return kept + tuple(map(self._declaration, self._offers))

    def _declaration(self, namespace: str) -> Declaration:
        declared = self._offers[namespace].declarations
        return next(each for each in declared if each.namespace == namespace)

    @property
    def counters(self) -> Mapping[str, ToolCounters]:
        return dict(self._counters)

    @property
    def sessions(self) -> Mapping[str, int]:
        """Of each tool, whose further tools use the same."""
        own = (offer.tool.declaration.namespace for offer in self._offers.values())
        return {name: len(self._pools[name]) for name in own}

    async def run(
        self,
        conversation: str,
        recipient: str,
        arguments: str,
        options: Mapping[str, Any] | None = None,
        *,
        client: Client = NOBODY,
    ) -> ToolOutput:
        """Runs one call. Raises only the caller's own cancellation."""
        namespace, _, function = recipient.partition(".")
        box = self._find(namespace)
        if box is None:
            return ToolOutput(f"There is no tool called {namespace[:80]!r}.", failed=True)
        return await box._run(conversation, namespace, ToolCall(function, arguments, options or {}, client))

    def session(self, conversation: str, namespace: str) -> Session | None:
        """A tool's session for a conversation, for callers that know it: to resolve cursors or list files."""
        box = self._find(namespace)
        return box._pools[namespace].peek(conversation) if box is not None else None

    def touch(self, conversation: str, namespace: str) -> None:
        if (box := self._find(namespace)) is not None:
            box._pools[namespace].touch(conversation)

    def conversations(self, namespace: str, owner: str | None = None) -> tuple[str, ...]:
        """The conversations with an open session of a tool, the oldest first; with `owner`, of this owner."""
        box = self._find(namespace)
        return box._pools[namespace].conversations(owner) if box is not None else ()

    def open(self, conversation: str, namespace: str, client: Client = NOBODY) -> Session:
        """The same, but opens a session if there is none. Raises TooManySessions or ToolUnavailable."""
        box = self._find(namespace)
        if box is None:
            raise ToolUnavailable(f"There is no tool called {namespace[:80]!r}.")
        if box._closed:  # nothing would close a session opened now
            raise ToolUnavailable("The server is shutting down; no tool can be used any more.")
        return box._pools[namespace].open(conversation, client)

    def forget(self, conversation: str, namespace: str | None = None) -> None:
        """Ends the conversation's sessions here, or its session of one tool, even if it is the parent's."""
        box = self._find(namespace) if namespace is not None else self
        pools = box._pools if box is not None else {}
        for name, pool in pools.items():
            if namespace in (None, name):
                pool.discard(conversation)

    async def take(self, offers: Iterable[Offer]) -> None:
        """Offers more tools from now on. A tool here with the same name ends, with its sessions."""
        if self._closed:  # nothing would close them later
            for offer in offers:
                await offer.tool.close()
            return
        ended = []
        for offer in offers:
            namespace = offer.tool.declaration.namespace
            if namespace in self._offers:
                ended.append((namespace, self._offers[namespace], self._pools[namespace]))
            self._add(namespace, offer)
        for name, offer, pool in ended:
            await _end(name, offer, pool)

    async def close(self) -> None:
        """Stops every call and closes every session and every tool here. May be called again."""
        self._closed = True
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOP_SECONDS)
        for name, offer in self._offers.items():
            await _end(name, offer, self._pools[name])

    def _add(self, namespace: str, offer: Offer) -> None:
        pool = SessionPool(offer.tool, offer.sessions, self._clock)
        for name in (namespace, *(further.namespace for further in offer.also)):
            self._offers[name], self._pools[name] = offer, pool

    def _find(self, namespace: str) -> Toolbox | None:
        if namespace in self._offers:
            return self
        return self._parent._find(namespace) if self._parent is not None else None

    async def _run(self, conversation: str, namespace: str, call: ToolCall) -> ToolOutput:
        offer = self._offers[namespace]
        name = offer.counted_as or namespace
        began = self._clock()
        outcome = "cancelled"
        try:
            output, outcome = await self._outcome(conversation, namespace, call)
            return bounded(output)
        finally:
            self._count(name, outcome, self._clock() - began)

    async def _outcome(self, conversation: str, namespace: str, call: ToolCall) -> tuple[ToolOutput, str]:
        """The output for the model, and the counter that it belongs to."""
        offer, pool = self._offers[namespace], self._pools[namespace]
        recipient = f"{namespace}.{call.function}" if call.function else namespace
        if self._closed:
            return _failed("The server is shutting down; no tool can be called any more."), "failed"
        wrong = _wrong_function(self._declaration(namespace), call.function)
        if wrong is not None:
            return _failed(wrong), "failed"
        try:
            async with pool.use(conversation, call.client) as session:
                answered, is_stopped = await self._bounded(session.run(call), offer.timeout)
                if answered is None and not is_stopped:
                    pool.discard(conversation)
            if answered is None:
                late = f"The call to {recipient} took longer than {offer.timeout:g} seconds and was stopped."
                return _failed(late), "timeout"
            return answered, "failed" if answered.failed else "done"
        except TooManySessions:
            busy = f"Too many conversations use {namespace} at the moment. "
            return _failed(f"{busy}Try again later, or go on without it."), "failed"
        except Exception:
            _log.exception("The tool %s raised", namespace)
            message = f"The tool {recipient} broke down over this call. Go on without its result."
            return _failed(message), "failed"

    async def _bounded(
        self, work: Coroutine[Any, Any, object], seconds: float
    ) -> tuple[ToolOutput | None, bool]:
        """Runs the work in a task of its own, so that it can be stopped, or abandoned if it does not stop.

        Returns its output; None if it took too long, and whether it then stopped.
        """
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await _stop(task)
            raise
        if not done:
            return None, await _stop(task)
        if task.cancelled() and self._closed:
            return _failed("The server is shutting down; the call was stopped."), True
        if task.cancelled():
            raise RuntimeError("the tool cancelled itself")
        output = task.result()
        if not isinstance(output, ToolOutput):
            raise TypeError(f"a tool's session returned {type(output).__name__}, not a ToolOutput")
        return output, True

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        counted = self._counters.setdefault(name, ToolCounters())
        counted.calls += 1
        counted.failures += outcome in ("failed", "timeout")
        counted.timeouts += outcome == "timeout"
        counted.cancelled += outcome == "cancelled"
        counted.seconds += seconds
        if self._on_call is not None:
            self._on_call(name, outcome, seconds)


async def _end(name: str, offer: Offer, pool: SessionPool) -> None:
    await pool.close()
    try:
        await offer.tool.close()
    except Exception:
        _log.exception("The tool %s did not close cleanly", name)


async def _stop(task: asyncio.Task[object]) -> bool:
    """Cancels and waits. The shield is for callers in a cancelled anyio scope, where no wait would last."""
    task.cancel()
    with anyio.CancelScope(shield=True):
        done, _ = await asyncio.wait({task}, timeout=_STOP_SECONDS)
    if not done:
        _log.warning("A tool's call did not stop within %g seconds of being cancelled", _STOP_SECONDS)
        task.add_done_callback(_read_outcome)
        return False
    _read_outcome(task)
    return True


def _read_outcome(task: asyncio.Task[object]) -> None:
    """Retrieves the result of stopped work, which asyncio would otherwise report as never retrieved."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("A tool's call raised while it was being stopped", exc_info=error)


def _wrong_function(declaration: Declaration, function: str) -> str | None:
    """The message to the model about a function that its tool does not have."""
    name = declaration.namespace
    known = [entry.name for entry in declaration.functions]
    if not known:
        return None if not function else f"{name} has no functions: it is called by its bare name, {name}."
    if function in known:
        return None
    mistake = f"has no function {function[:80]!r}" if function else "cannot be called by itself"
    return f"{name} {mistake}. Its functions are: {', '.join(f'{name}.{word}' for word in known)}."


def _failed(text: str) -> ToolOutput:
    return ToolOutput(text, failed=True)
