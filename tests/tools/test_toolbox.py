"""The toolbox routes, bounds, counts and stops, whatever its tools do."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio
import pytest

from tests.contracts.tool_contract import ToolContract
from tools.sessions import SessionLimits, TooManySessions
from tools.tool import Declaration, Function, Tool, ToolCall, ToolOutput, ToolUnavailable
from tools.toolbox import Offer, Toolbox

Behaviour = Callable[[ToolCall], Awaitable[Any]]


class Scripted:
    """A tool whose calls do what a test says, and which remembers what was opened and closed."""

    def __init__(
        self, behaviour: Behaviour, namespace: str = "notes", functions: tuple[str, ...] = ("add",)
    ) -> None:
        self.declaration = Declaration(namespace, None, tuple(Function(name) for name in functions))
        self.behaviour = behaviour
        self.opened = 0
        self.closed_sessions = 0
        self.closed = 0
        self.at_once = 0
        self.most_at_once = 0

    def open(self) -> ScriptedSession:
        self.opened += 1
        return ScriptedSession(self, self.opened)

    async def close(self) -> None:
        self.closed += 1


class ScriptedSession:
    def __init__(self, tool: Scripted, number: int) -> None:
        self.tool = tool
        self.number = number

    async def run(self, call: ToolCall) -> Any:
        self.tool.at_once += 1
        self.tool.most_at_once = max(self.tool.most_at_once, self.tool.at_once)
        try:
            return await self.tool.behaviour(call)
        finally:
            self.tool.at_once -= 1

    async def close(self) -> None:
        self.tool.closed_sessions += 1


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


async def says(call: ToolCall) -> ToolOutput:
    return ToolOutput(f"{call.function}({call.arguments})", details=dict(call.options))


async def sleeps(call: ToolCall) -> ToolOutput:
    await asyncio.sleep(30)
    return ToolOutput("late")


async def breaks(call: ToolCall) -> ToolOutput:
    raise ZeroDivisionError("a secret in the message")


def fails_with(error: BaseException) -> Behaviour:
    async def behaviour(call: ToolCall) -> ToolOutput:
        raise error

    return behaviour


class TestScripted(ToolContract):
    """The contract itself, on a tool that answers everything."""

    async def make(self) -> Tool:
        async def answers(call: ToolCall) -> ToolOutput:
            if call.function == "wait":
                await asyncio.sleep(60 if call.arguments == "long" else 0)
            return ToolOutput("yes", failed=call.function != "wait")

        return Scripted(answers, functions=("wait",))

    def slow_call(self) -> ToolCall:
        return ToolCall("wait", "long")


async def test_a_recipient_reaches_its_function_with_arguments_and_options() -> None:
    box = Toolbox([Offer(Scripted(says)), Offer(Scripted(says, "python", ()))])
    assert (await box.run("c", "notes.add", "{}", {"a": 1})) == ToolOutput("add({})", details={"a": 1})
    assert (await box.run("c", "python", "1+1")).text == "(1+1)"
    assert box.offers("notes.add")
    assert box.offers("notes.unknown")
    assert not box.offers("functions.add")
    await box.close()


@pytest.mark.parametrize("recipient", ["notes.remove", "notes", "notes.", "notes.add.twice", "notes. add"])
async def test_an_unknown_function_is_answered_with_the_functions_there_are(recipient: str) -> None:
    box = Toolbox([Offer(Scripted(says, functions=("add", "list")))])
    output = await box.run("c", recipient, "{}")
    assert output.failed
    assert "notes.add, notes.list" in output.text
    await box.close()


async def test_a_tool_without_functions_is_called_by_its_bare_name() -> None:
    box = Toolbox([Offer(Scripted(says, "python", ()))])
    output = await box.run("c", "python.exec", "1")
    assert output.failed
    assert "bare name" in output.text
    await box.close()


async def test_a_tool_that_is_not_here_is_a_failed_output() -> None:
    assert (await Toolbox().run("c", "browser.search", "{}")).failed


async def test_a_call_that_takes_too_long_is_stopped_and_the_model_is_told() -> None:
    stopped = asyncio.Event()

    async def notices(call: ToolCall) -> ToolOutput:
        try:
            return await sleeps(call)
        finally:
            stopped.set()

    box = Toolbox([Offer(Scripted(notices), timeout=0.05)])
    output = await box.run("c", "notes.add", "{}")
    assert output.failed
    assert "longer than 0.05 seconds" in output.text
    assert stopped.is_set()
    assert box.counters["notes"].timeouts == 1
    await box.close()


@pytest.mark.parametrize(
    "error",
    [ZeroDivisionError("secret"), TimeoutError(), ValueError(), ExceptionGroup("many", [OSError("secret")])],
)
async def test_an_exception_is_a_sentence_for_the_model_and_a_traceback_for_the_log(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    box = Toolbox([Offer(Scripted(fails_with(error)))])
    output = await box.run("c", "notes.add", "{}")
    assert output.failed
    assert "secret" not in output.text
    assert any(record.exc_info for record in caplog.records)
    assert box.counters["notes"].failures == 1
    assert box.counters["notes"].timeouts == 0
    await box.close()


@pytest.mark.parametrize("value", [None, "text", 5, b"bytes"])
async def test_what_is_no_output_is_a_failure(value: object, caplog: pytest.LogCaptureFixture) -> None:
    async def returns(call: ToolCall) -> Any:
        return value

    box = Toolbox([Offer(Scripted(returns))])
    assert (await box.run("c", "notes.add", "{}")).failed
    await box.close()


async def test_a_tool_that_cancels_itself_fails_and_does_not_cancel_the_turn(
    caplog: pytest.LogCaptureFixture,
) -> None:
    box = Toolbox([Offer(Scripted(fails_with(asyncio.CancelledError())))])
    assert (await box.run("c", "notes.add", "{}")).failed
    await box.close()


async def test_a_tool_that_cannot_open_a_session_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Shut(Scripted):
        def open(self) -> ScriptedSession:
            raise OSError("no room")

    box = Toolbox([Offer(Shut(says))])
    assert (await box.run("c", "notes.add", "{}")).failed
    await box.close()


async def test_cancelling_the_caller_stops_the_work_before_it_returns() -> None:
    stopped = asyncio.Event()

    async def notices(call: ToolCall) -> ToolOutput:
        try:
            return await sleeps(call)
        finally:
            await asyncio.sleep(0.02)
            stopped.set()

    box = Toolbox([Offer(Scripted(notices))])
    with anyio.move_on_after(0.05) as scope:
        await box.run("c", "notes.add", "{}")
    assert scope.cancelled_caught
    assert stopped.is_set()
    assert box.counters["notes"].cancelled == 1
    assert box.counters["notes"].failures == 0
    await box.close()


async def test_work_that_will_not_stop_is_left_behind_with_its_session(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("tools.toolbox._STOP_SECONDS", 0.05)
    release = asyncio.Event()

    async def stubborn(call: ToolCall) -> ToolOutput:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return ToolOutput("late")

    tool = Scripted(stubborn)
    box = Toolbox([Offer(tool, timeout=0.05)])
    assert (await box.run("c", "notes.add", "{}")).failed
    assert "did not stop" in caplog.text
    assert box.sessions["notes"] == 0
    release.set()
    await box.close()
    assert tool.closed_sessions == tool.opened == 1


async def test_calls_of_one_conversation_come_one_at_a_time_and_others_do_not_wait() -> None:
    async def short(call: ToolCall) -> ToolOutput:
        await asyncio.sleep(0.01)
        return ToolOutput("done")

    tool = Scripted(short)
    box = Toolbox([Offer(tool)])
    await asyncio.gather(*(box.run("one", "notes.add", "{}") for _ in range(4)))
    assert tool.most_at_once == 1
    await asyncio.gather(*(box.run(f"c{n}", "notes.add", "{}") for n in range(4)))
    assert tool.most_at_once == 4
    assert tool.opened == 5
    await box.close()


async def test_sessions_end_when_idle_when_old_and_when_forgotten() -> None:
    clock, tool = Clock(), Scripted(says)
    box = Toolbox([Offer(tool, sessions=SessionLimits(idle=10, age=25))], clock=clock)
    for at, opened in ((0, 1), (9, 1), (18, 1), (24, 1), (26, 2), (37, 3)):
        clock.now = at
        await box.run("c", "notes.add", "{}")
        assert tool.opened == opened, at
    box.forget("c")
    await box.run("c", "notes.add", "{}")
    assert tool.opened == 4
    await box.close()
    assert tool.closed_sessions == 4


async def test_sessions_end_in_a_quiet_server_too() -> None:
    tool = Scripted(says)
    box = Toolbox([Offer(tool, sessions=SessionLimits(idle=0.01))])
    await box.run("c", "notes.add", "{}")
    await asyncio.sleep(1.2)
    assert tool.closed_sessions == 1
    await box.close()


async def test_a_session_is_looked_at_without_being_made_or_kept_alive() -> None:
    clock, tool = Clock(), Scripted(says)
    server = Toolbox([Offer(tool, sessions=SessionLimits(idle=10))], clock=clock)
    request = Toolbox([Offer(Scripted(says, "mine"))], parent=server)
    assert request.session("c", "notes") is None
    assert request.session("c", "unknown") is None
    assert tool.opened == 0
    await request.run("c", "notes.add", "{}")
    session = request.session("c", "notes")
    assert isinstance(session, ScriptedSession)
    assert (session.number, server.session("c", "notes")) == (1, session)
    assert (server.session("other", "notes"), server.session("c", "mine")) == (None, None)
    clock.now = 9
    server.session("c", "notes")
    clock.now = 11
    await server.run("other", "notes.add", "{}")
    assert server.session("c", "notes") is None
    await request.close()
    await server.close()


async def test_a_session_opened_without_a_call_is_the_one_of_the_calls_and_ends_as_they_do() -> None:
    clock, tool = Clock(), Scripted(says)
    server = Toolbox([Offer(tool, sessions=SessionLimits(idle=10))], clock=clock)
    request = Toolbox(parent=server)
    opened = request.open("c", "notes")
    await server.run("c", "notes.add", "{}")
    clock.now = 9
    assert server.open("c", "notes") is opened
    clock.now = 18
    await server.run("other", "notes.add", "{}")
    assert server.session("c", "notes") is opened
    clock.now = 28
    assert server.open("c", "notes") is not opened
    assert server.counters["notes"].calls == 2
    await server.close()
    assert tool.closed_sessions == tool.opened == 3


async def test_a_session_opened_without_a_call_ends_in_a_quiet_server_too() -> None:
    tool = Scripted(says)
    box = Toolbox([Offer(tool, sessions=SessionLimits(idle=0.01))])
    box.open("c", "notes")
    await asyncio.sleep(1.2)
    assert tool.closed_sessions == 1
    await box.close()


async def test_no_session_is_opened_beyond_the_limit_in_a_closed_toolbox_or_of_no_tool() -> None:
    box = Toolbox([Offer(Scripted(sleeps), sessions=SessionLimits(count=1))])
    busy = asyncio.ensure_future(box.run("busy", "notes.add", "{}"))
    await asyncio.sleep(0)
    with pytest.raises(TooManySessions):
        box.open("c", "notes")
    with pytest.raises(ToolUnavailable, match="no tool called 'unknown'"):
        box.open("c", "unknown")
    await box.close()
    assert (await busy).failed
    with pytest.raises(ToolUnavailable, match="shutting down"):
        box.open("c", "notes")


async def test_one_tool_can_be_forgotten_alone() -> None:
    notes, other = Scripted(says), Scripted(says, "other")
    server = Toolbox([Offer(notes), Offer(other)])
    request = Toolbox([Offer(Scripted(says, "mine"))], parent=server)
    for recipient in ("notes.add", "other.add", "mine.add"):
        await request.run("c", recipient, "{}")
    request.forget("c", "notes")
    request.forget("c", "unknown")
    assert server.sessions == {"notes": 0, "other": 1}
    assert request.sessions == {"mine": 1}
    request.forget("c")
    assert server.sessions == {"notes": 0, "other": 1}  # the parent's are not the request's to end
    assert request.sessions == {"mine": 0}
    server.forget("c")
    assert server.sessions == {"notes": 0, "other": 0}
    await request.close()
    await server.close()


async def test_the_conversation_unused_for_longest_makes_room_and_one_in_use_never_does() -> None:
    clock, gate = Clock(), asyncio.Event()

    async def waits(call: ToolCall) -> ToolOutput:
        if call.arguments == "wait":
            await gate.wait()
        return ToolOutput("done")

    tool = Scripted(waits)
    box = Toolbox([Offer(tool, sessions=SessionLimits(count=2))], clock=clock)
    busy = asyncio.ensure_future(box.run("busy", "notes.add", "wait"))
    await asyncio.sleep(0)
    for number in range(3):
        clock.now += 1
        assert not (await box.run(f"c{number}", "notes.add", "{}")).failed
    assert box.sessions["notes"] == 2
    also = asyncio.ensure_future(box.run("c2", "notes.add", "wait"))
    await asyncio.sleep(0)
    refused = await box.run("one more", "notes.add", "{}")
    assert refused.failed
    assert "Too many conversations" in refused.text
    gate.set()
    assert not (await busy).failed
    assert not (await also).failed
    await box.close()


async def test_a_session_that_cannot_close_is_logged_and_the_rest_closes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(ScriptedSession):
        async def close(self) -> None:
            raise OSError("stuck")

    class Sticky(Scripted):
        def open(self) -> ScriptedSession:
            return Stuck(self, 1)

        async def close(self) -> None:
            raise OSError("stuck too")

    other = Scripted(says, "other")
    box = Toolbox([Offer(Sticky(says)), Offer(other)])
    await box.run("c", "notes.add", "{}")
    await box.close()
    assert other.closed == 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2


async def test_closing_stops_what_runs_and_refuses_what_comes() -> None:
    tool = Scripted(sleeps)
    box = Toolbox([Offer(tool)])
    running = asyncio.ensure_future(box.run("c", "notes.add", "{}"))
    await asyncio.sleep(0.01)
    began = time.monotonic()
    await box.close()
    await box.close()
    assert time.monotonic() - began < 1
    assert (await running).failed
    assert (await box.run("c", "notes.add", "{}")).failed
    assert tool.closed_sessions == 1


async def test_a_request_has_tools_of_its_own_before_those_of_the_server() -> None:
    shared, own = Scripted(says), Scripted(says, "mine")
    server = Toolbox([Offer(shared)])
    request = Toolbox([Offer(own, counted_as="mcp")], parent=server)
    assert [each.namespace for each in request.declarations] == ["notes", "mine"]
    assert not (await request.run("c", "notes.add", "{}")).failed
    assert not (await request.run("c", "mine.add", "{}")).failed
    await request.close()
    assert (own.closed, shared.closed) == (1, 0)
    await server.run("c", "notes.add", "{}")
    assert shared.opened == 1
    assert {name: each.calls for name, each in server.counters.items()} == {"notes": 2, "mcp": 1}
    await server.close()


async def test_counters_add_up() -> None:
    clock = Clock()

    async def takes_two(call: ToolCall) -> ToolOutput:
        clock.now += 2
        return ToolOutput("done", failed=call.arguments == "bad")

    box = Toolbox([Offer(Scripted(takes_two))], clock=clock)
    for arguments in ("good", "bad", "good"):
        await box.run("c", "notes.add", arguments)
    counted = box.counters["notes"]
    assert (counted.calls, counted.failures, counted.timeouts, counted.seconds) == (3, 1, 0, 6.0)
    await box.close()


def test_two_tools_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="notes"):
        Toolbox([Offer(Scripted(says)), Offer(Scripted(says))])
