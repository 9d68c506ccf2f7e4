"""The shell in a conversation's Python, in a real sandbox."""

import asyncio
import json
from typing import Any

import pytest

from tests.doubles.tools.calling import output_of, processes, what_gets_through
from tests.doubles.waiting import until
from tests.tools.python.conftest import MakeTool
from tools.python import PythonSession
from tools.tool import ToolCall, ToolOutput


async def shell(session: PythonSession, *commands: str, **limits: int) -> ToolOutput:
    return await session.run(ToolCall("exec", json.dumps({"commands": commands, **limits})))


async def outputs(session: PythonSession, *commands: str, **limits: int) -> list[dict[str, Any]]:
    ran = await shell(session, *commands, **limits)
    assert json.loads(ran.text) == ran.details["output"]
    found: list[dict[str, Any]] = ran.details["output"]
    return found


def ended(code: int) -> dict[str, Any]:
    return {"type": "exit", "exit_code": code}


async def test_each_command_has_its_output_and_exit_code(session: PythonSession) -> None:
    first, second, third = await outputs(session, "echo a > a.txt; pwd", "cat a.txt; ls /nope", "exit 3")
    assert first == {"stdout": "/mnt/data\n", "stderr": "", "outcome": ended(0)}
    assert (second["stdout"], second["outcome"]) == ("a\n", ended(2))
    assert "/nope" in second["stderr"]
    assert third["outcome"] == ended(3)


async def test_it_has_the_files_of_python_and_leaves_no_names_there(session: PythonSession) -> None:
    await outputs(session, "echo 41 > n")
    names = "[name for name in dir() if not name.startswith('_')]"
    assert await output_of(session, f"int(open('n').read()) + 1, {names}") == (
        "(42, ['In', 'Out', 'exit', 'get_ipython', 'open', 'quit'])"
    )


async def test_a_command_over_its_time_ends_with_all_that_it_started(session: PythonSession) -> None:
    await outputs(session, "true")
    before = processes()
    late, after = await outputs(session, "echo on; sleep 30 | sleep 31", "echo next", timeout_ms=300)
    assert late == {"stdout": "on\n", "stderr": "", "outcome": {"type": "timeout"}}
    assert after["outcome"] == ended(0)
    await until(lambda: processes() == before)


async def test_a_call_over_its_time_keeps_what_was_done(make_tool: MakeTool) -> None:
    session = make_tool(timeout=1.5).open()
    ran = await shell(session, "echo a", "echo b; sleep 30", "echo c")
    assert ran.failed
    first, second, third = ran.details["output"]
    assert (first["stdout"], second["stdout"], third["stdout"]) == ("a\n", "b\n", "")
    assert (first["outcome"], second["outcome"]) == (ended(0), {"type": "timeout"})
    assert "Timed out" in third["stderr"]
    assert (await outputs(session, "echo d"))[0]["stdout"] == "d\n"


async def test_a_command_may_leave_a_process_running(session: PythonSession) -> None:
    async with asyncio.timeout(20):
        (started,) = await outputs(session, "sleep 60 & echo started")
    assert started["stdout"] == "started\n"


async def test_any_amount_of_any_bytes_is_bounded_text(session: PythonSession) -> None:
    big, odd = await outputs(session, "head -c 300000000 /dev/zero | tr '\\0' a", r"printf '\xff\x1b[31m\0'")
    assert 4_000 < len(big["stdout"]) < 6_000
    assert big["stdout"].endswith("[the rest was cut]")
    assert odd["stdout"] == "\ufffd\x1b[31m\0"
    (short,) = await outputs(session, "echo 123456789", max_output_length=4)
    assert short["stdout"] == "1234\n[the rest was cut]"


async def test_the_end_of_the_kernel_is_told(session: PythonSession) -> None:
    ran = await shell(session, "kill -9 $PPID")
    assert ran.failed
    assert "kernel died" in ran.details["output"][0]["stderr"]
    assert (await outputs(session, "echo again"))[0]["stdout"] == "again\n"


@pytest.mark.parametrize(
    "arguments", ["ls", "[]", "{}", '{"commands": "ls"}', '{"commands": []}', '{"commands": [1]}']
)
async def test_other_arguments_are_refused_with_an_example(session: PythonSession, arguments: str) -> None:
    ran = await session.run(ToolCall("exec", arguments))
    assert ran.failed
    assert '{"commands": ["ls -l"]}' in ran.details["output"][0]["stderr"]
    assert ran.details["output"][0]["outcome"] == ended(126)


async def test_no_attempt_to_escape_succeeds_in_the_shell(make_tool: MakeTool, known: dict[str, Any]) -> None:
    assert not await what_gets_through(make_tool(timeout=60.0), known, in_shell=True)
