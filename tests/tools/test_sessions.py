"""The toolbox keeps one session for each conversation, within its limits."""

import asyncio
import logging

import pytest

from tests.doubles.tools.scripted_tool import Clock, Scripted, ScriptedSession, echoes, sleeps
from tools.sessions import SessionLimits, TooManySessions
from tools.tool import Client, ToolCall, ToolOutput, ToolUnavailable
from tools.toolbox import Offer, Toolbox


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
    clock, tool = Clock(), Scripted(echoes)
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
    called, opened = Scripted(echoes), Scripted(echoes)
    boxes = [Toolbox([Offer(tool, sessions=SessionLimits(idle=0.01))]) for tool in (called, opened)]
    await boxes[0].run("c", "notes.add", "{}")
    boxes[1].open("c", "notes")
    await asyncio.sleep(1.2)
    assert (called.closed_sessions, opened.closed_sessions) == (1, 1)
    for box in boxes:
        await box.close()


async def test_peeking_neither_creates_a_session_nor_keeps_it_alive() -> None:
    clock, tool = Clock(), Scripted(echoes)
    server = Toolbox([Offer(tool, sessions=SessionLimits(idle=10))], clock=clock)
    request = Toolbox([Offer(Scripted(echoes, "mine"))], parent=server)
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


async def test_a_session_opened_without_a_call_serves_the_calls_and_ends_like_any_other() -> None:
    clock, tool = Clock(), Scripted(echoes)
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


async def test_no_session_is_opened_beyond_the_limit_in_a_closed_toolbox_or_without_a_tool() -> None:
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


async def test_owners_keep_their_sessions_and_each_has_a_bound() -> None:
    clock, limits = Clock(), SessionLimits(idle=100, count=3, per_owner=2, spared=10)
    box = Toolbox([Offer(Scripted(echoes), sessions=limits)], clock=clock)

    async def called(name: str) -> ToolOutput:
        return await box.run(name, "notes.add", "{}", client=Client(name[0]))

    def no_room(name: str) -> TooManySessions:
        with pytest.raises(TooManySessions) as refused:
            box.open(name, "notes", Client(name[0]))
        return refused.value

    first, _ = (box.open(name, "notes", Client("a")) for name in ("a1", "a2"))
    assert no_room("a3").of_owner
    box.open("b1", "notes", Client("b"))
    assert not no_room("b2").of_owner
    assert not (await called("b2")).failed, "a call replaces the owner's own"
    assert box.session("b1", "notes") is None
    assert "Too many conversations" in (await called("c1")).text
    assert box.session("a1", "notes") is first
    clock.now = 11  # those were unused for a while
    assert not no_room("c1").of_owner
    assert not (await called("c1")).failed
    assert box.session("a1", "notes") is None
    assert box.open("a2", "notes", Client("a")) is not None, "also beyond the bound: it exists"
    await box.close()


async def test_one_tool_can_be_forgotten_alone() -> None:
    notes, other = Scripted(echoes), Scripted(echoes, "other")
    server = Toolbox([Offer(notes), Offer(other)])
    request = Toolbox([Offer(Scripted(echoes, "mine"))], parent=server)
    for recipient in ("notes.add", "other.add", "mine.add"):
        await request.run("c", recipient, "{}")
    request.forget("c", "notes")
    request.forget("c", "unknown")
    assert server.sessions == {"notes": 0, "other": 1}
    assert request.sessions == {"mine": 1}
    request.forget("c")
    assert server.sessions == {"notes": 0, "other": 1}  # a request must not end its parent's sessions
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


async def test_a_session_that_cannot_close_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    class Stuck(ScriptedSession):
        async def close(self) -> None:
            raise OSError("stuck")

    class Sticky(Scripted):
        def open(self) -> ScriptedSession:
            return Stuck(self, 1)

        async def close(self) -> None:
            raise OSError("stuck too")

    other = Scripted(echoes, "other")
    box = Toolbox([Offer(Sticky(echoes)), Offer(other)])
    await box.run("c", "notes.add", "{}")
    await box.close()
    assert other.closed == 1
    assert len([record for record in caplog.records if record.levelno == logging.ERROR]) == 2
