"""The tools that a server offers: a call of the model in, what the model reads out.

Routes a Harmony recipient (`browser.search`, `python`, `label.tool`) to its tool and runs it in the
conversation's session, within the tool's time. Whatever goes wrong there is a failed output with a
sentence, never an exception; only cancellation passes through, and takes the running work with it. A
request's own tools stand in a toolbox whose parent is the server's: closing it leaves the server's tools
alone. Nothing here knows of the server, of Harmony's tokens, or of what any tool does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import anyio

from tools.outputs import OutputLimits, bounded
from tools.sessions import SessionLimits, SessionPool, TooManySessions
from tools.tool import Declaration, Session, Tool, ToolCall, ToolOutput, ToolUnavailable

_log = logging.getLogger(__name__)
_STOP_SECONDS = 10.0  # how long cancelled work may take to stop before it is left behind
_MARGIN = 15.0  # seconds by which the time-out of an offer exceeds that of its tool


@dataclass(frozen=True, slots=True)
class Offer:
    """A tool and its bounds. `counted_as` keeps names that clients choose out of the metrics."""

    tool: Tool
    timeout: float = 120.0
    sessions: SessionLimits = field(default_factory=SessionLimits)
    counted_as: str | None = None


def offer_of(tool: Tool, timeout: float, *, counted_as: str | None = None) -> Offer:
    """The offer of a tool with its own time-out: the toolbox waits longer, so the tool stops first."""
    return Offer(tool, timeout=timeout + _MARGIN, counted_as=counted_as)


@dataclass(frozen=True, slots=True)
class Counters:
    """What calls of one tool came to. Time-outs are failures too; cancelled calls are neither."""

    calls: int = 0
    failures: int = 0
    timeouts: int = 0
    cancelled: int = 0
    seconds: float = 0.0


class _TimedOut(Exception):
    """The work took too long and was stopped; `left_behind` where it did not stop."""

    def __init__(self, *, left_behind: bool) -> None:
        super().__init__()
        self.left_behind = left_behind


class _Closed(Exception):
    """The toolbox closed while the call ran."""


class Toolbox:
    def __init__(
        self,
        offers: Iterable[Offer] = (),
        *,
        parent: Toolbox | None = None,
        outputs: OutputLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._offers: dict[str, Offer] = {}
        self._pools: dict[str, SessionPool] = {}
        self._clock = clock
        for offer in offers:
            namespace = offer.tool.declaration.namespace
            if namespace in self._offers:
                raise ValueError(f"Two tools are called {namespace!r}.")
            self._add(namespace, offer)
        self._parent = parent
        self._outputs = outputs or OutputLimits()
        self._counters: dict[str, Counters] = parent._counters if parent is not None else {}
        self._running: set[asyncio.Task[ToolOutput]] = set()
        self._closed = False

    @property
    def declarations(self) -> tuple[Declaration, ...]:
        """What the model is told of, the parent's tools first; a tool here hides one of its name there."""
        above = self._parent.declarations if self._parent is not None else ()
        kept = tuple(each for each in above if each.namespace not in self._offers)
        return kept + tuple(offer.tool.declaration for offer in self._offers.values())

    @property
    def counters(self) -> Mapping[str, Counters]:
        return dict(self._counters)

    @property
    def sessions(self) -> Mapping[str, int]:
        """How many sessions each tool has open."""
        return {name: len(pool) for name, pool in self._pools.items()}

    def offers(self, recipient: str) -> bool:
        """Whether a recipient's namespace is a tool here, be its function known or not."""
        return self._find(_split(recipient)[0]) is not None

    async def run(
        self, conversation: str, recipient: str, arguments: str, options: Mapping[str, Any] | None = None
    ) -> ToolOutput:
        """Runs one call. Raises nothing but the caller's own cancellation."""
        namespace, function = _split(recipient)
        box = self._find(namespace)
        if box is None:
            return ToolOutput(f"There is no tool called {namespace[:80]!r}.", failed=True)
        return await box._run(conversation, namespace, ToolCall(function, arguments, options or {}))

    def session(self, conversation: str, namespace: str) -> Session | None:
        """What a tool holds of a conversation, for who knows the tool: to resolve cursors, to list files."""
        box = self._find(namespace)
        return box._pools[namespace].peek(conversation) if box is not None else None

    def touch(self, conversation: str, namespace: str) -> None:
        """What a tool holds of a conversation is used, such as its files: it is not idle."""
        if (box := self._find(namespace)) is not None:
            box._pools[namespace].touch(conversation)

    def conversations(self, namespace: str) -> tuple[str, ...]:
        """Whose sessions a tool has open, the oldest first."""
        box = self._find(namespace)
        return box._pools[namespace].conversations if box is not None else ()

    def open(self, conversation: str, namespace: str) -> Session:
        """The same, made where there is none yet. Raises TooManySessions or ToolUnavailable."""
        box = self._find(namespace)
        if box is None:
            raise ToolUnavailable(f"There is no tool called {namespace[:80]!r}.")
        if box._closed:  # nothing would close what is opened now
            raise ToolUnavailable("The server is shutting down; no tool can be used any more.")
        return box._pools[namespace].open(conversation)

    def forget(self, conversation: str, namespace: str | None = None) -> None:
        """Ends what the tools here hold of a conversation, or what one tool does, be it the parent's."""
        box = self._find(namespace) if namespace is not None else self
        pools = box._pools if box is not None else {}
        for name, pool in pools.items():
            if namespace in (None, name):
                pool.discard(conversation)

    async def take(self, offers: Iterable[Offer]) -> None:
        """Offers more from now on. A tool here whose name one of them has ends, with its sessions."""
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
        """Stops every call, closes every session and every tool here. May be called again."""
        self._closed = True
        running = set(self._running)
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running, timeout=_STOP_SECONDS)
        for name, offer in self._offers.items():
            await _end(name, offer, self._pools[name])

    def _add(self, namespace: str, offer: Offer) -> None:
        self._offers[namespace] = offer
        self._pools[namespace] = SessionPool(offer.tool, offer.sessions, self._clock)

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
            return bounded(output, self._outputs)
        finally:
            self._count(name, outcome, self._clock() - began)

    async def _outcome(self, conversation: str, namespace: str, call: ToolCall) -> tuple[ToolOutput, str]:
        """What the model reads, and the counter it belongs to."""
        offer, pool = self._offers[namespace], self._pools[namespace]
        recipient = f"{namespace}.{call.function}" if call.function else namespace
        if self._closed:
            return _failed("The server is shutting down; no tool can be called any more."), "failed"
        wrong = _wrong_function(offer.tool.declaration, call.function)
        if wrong is not None:
            return _failed(wrong), "failed"
        try:
            async with pool.use(conversation) as session:
                try:
                    output = await self._bounded(_checked_run(session, call), offer.timeout)
                except _TimedOut as stopped:
                    if stopped.left_behind:
                        pool.discard(conversation)
                    raise
            return output, "failed" if output.failed else "done"
        except _TimedOut:
            said = f"The call to {recipient} took longer than {offer.timeout:g} seconds and was stopped."
            return _failed(said), "timeout"
        except _Closed:
            return _failed("The server is shutting down; the call was stopped."), "failed"
        except TooManySessions:
            said = (
                f"Too many conversations use {namespace} at the moment. Try again later, or go on without it."
            )
            return _failed(said), "failed"
        except Exception:
            _log.exception("The tool %s raised", namespace)
            return _failed(
                f"The tool {recipient} broke down over this call. Go on without its result."
            ), "failed"

    async def _bounded(self, work: Coroutine[Any, Any, ToolOutput], seconds: float) -> ToolOutput:
        """Runs the work in a task of its own, so that it can be stopped, or left behind if it will not."""
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            done, _ = await asyncio.wait({task}, timeout=seconds)
        except asyncio.CancelledError:
            await _stop(task)
            raise
        if not done:
            raise _TimedOut(left_behind=not await _stop(task))
        if task.cancelled() and self._closed:
            raise _Closed
        if task.cancelled():
            raise RuntimeError("the tool cancelled itself")
        return task.result()

    def _count(self, name: str, outcome: str, seconds: float) -> None:
        so_far = self._counters.get(name, Counters())
        self._counters[name] = replace(
            so_far,
            calls=so_far.calls + 1,
            failures=so_far.failures + (outcome in ("failed", "timeout")),
            timeouts=so_far.timeouts + (outcome == "timeout"),
            cancelled=so_far.cancelled + (outcome == "cancelled"),
            seconds=so_far.seconds + seconds,
        )


async def _end(name: str, offer: Offer, pool: SessionPool) -> None:
    await pool.close()
    try:
        await offer.tool.close()
    except Exception:
        _log.exception("The tool %s did not close cleanly", name)


async def _checked_run(session: Session, call: ToolCall) -> ToolOutput:
    output: object = await session.run(call)
    if not isinstance(output, ToolOutput):
        raise TypeError(f"a tool's session returned {type(output).__name__}, not a ToolOutput")
    return output


async def _stop(task: asyncio.Task[ToolOutput]) -> bool:
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


def _read_outcome(task: asyncio.Task[ToolOutput]) -> None:
    """Looks at what stopped work ended with, which asyncio would else report as never retrieved."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.warning("A tool's call raised while it was being stopped", exc_info=error)


def _split(recipient: str) -> tuple[str, str]:
    namespace, _, function = recipient.partition(".")
    return namespace, function


def _wrong_function(declaration: Declaration, function: str) -> str | None:
    """What to tell the model of a function that its tool does not have."""
    name = declaration.namespace
    known = [each.name for each in declaration.functions]
    if not known:
        return None if not function else f"{name} has no functions: it is called by its bare name, {name}."
    if function in known:
        return None
    asked = (
        f"{name} has no function {function[:80]!r}." if function else f"{name} cannot be called by itself."
    )
    return f"{asked} Its functions are: {', '.join(f'{name}.{each}' for each in known)}."


def _failed(text: str) -> ToolOutput:
    return ToolOutput(text, failed=True)
