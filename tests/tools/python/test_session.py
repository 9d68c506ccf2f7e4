"""A conversation with the python tool, in each real sandbox that is available."""

import asyncio
import base64
import importlib.util
import time

import pytest

from tests.doubles.tools.calling import call, failure, launchers, output_of, processes
from tests.doubles.waiting import until_found
from tests.tools.python.conftest import MakeTool, bubblewrap, docker
from tools.python import FileRefused, PythonSession, PythonTool, Sandbox
from tools.python.session import NO_OUTPUT
from tools.tool import ToolCall


@pytest.fixture(scope="module", params=[bubblewrap, docker], ids=["bubblewrap", "docker"])
def sandbox(request: pytest.FixtureRequest) -> Sandbox:
    sandbox: Sandbox = request.param()
    return sandbox


async def test_state_is_kept_between_calls(session: PythonSession) -> None:
    assert (await call(session, "x = 41")).text == NO_OUTPUT
    assert await output_of(session, "x + 1") == "42"


async def test_modules_in_the_current_folder_are_found(session: PythonSession) -> None:
    await session.write("helper.py", b"def f(): return 42\n")
    assert await output_of(session, "import helper; helper.f()") == "42"
    await call(session, "%%writefile json.py\nraise SystemExit")
    assert await output_of(session, "import json; json.dumps([1])") == "'[1]'", "Python's own come first"


async def test_an_exception_is_an_answer_without_terminal_codes(session: PythonSession) -> None:
    output = await call(session, "def f():\n    return 1/0\nf()")
    assert not output.failed
    assert "ZeroDivisionError: division by zero" in output.text
    assert "\x1b" not in output.text
    assert output.details["outputs"] == [{"type": "logs", "logs": output.text}]


async def test_slips_are_understood_and_functions_are_not(session: PythonSession) -> None:
    assert (await session.run(ToolCall("", '{"code": "print(1)"}'))).text == "1\n"
    assert (await session.run(ToolCall("", "```python\nprint(2)\n```"))).text == "2\n"
    refused = await session.run(ToolCall("walk", "print(3)"))
    assert refused.failed
    assert "no function 'walk'" in refused.text


DISPLAY = "from IPython.display import display; display({'image/png': None, 'text/plain': 'plot'}, raw=True)"
PRINTED = {
    r"import sys; print('before'); sys.stdout.write('\ud800\n'); print('after')": "before\n?\nafter",
    r"raise ValueError('a \udfff b')": "ValueError: a ? b",  # halves of characters cost no output
    DISPLAY: "plot",
    "print('out', flush=True); import sys; print('err', file=sys.stderr)": "out\nerr",
    "x = = 1": "SyntaxError: invalid syntax",
}


async def test_outputs_of_every_kind_are_text(session: PythonSession) -> None:
    for source, end in PRINTED.items():
        assert (await output_of(session, source)).endswith(end)
    assert await output_of(session, r"{'\ud800': 1}") in ("{'?': 1}", r"{'\ud800': 1}")
    assert "StdinNotImplementedError" in await output_of(session, "input()")
    (await output_of(session, r"import os; os.write(1, bytes(range(256)) * 4); print('\ud800')")).encode()


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="matplotlib is not installed")
async def test_a_plot_comes_back_as_a_png(session: PythonSession) -> None:
    plot = "import matplotlib.pyplot as plt\nplt.plot([1, 2, 3]); plt.show()"
    output = await call(session, f"print('before')\n{plot}\nprint('after')")
    assert output.text == "before\n[image]\nafter\n"
    head, _, encoded = output.details["outputs"][1]["url"].partition(",")
    assert head == "data:image/png;base64"
    assert base64.b64decode(encoded).startswith(b"\x89PNG\r\n\x1a\n")


STUBBORN = """
import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)
open("started", "w").close()
while True: pass
"""


async def test_a_time_out_interrupts_and_keeps_variables(make_tool: MakeTool) -> None:
    session = make_tool(timeout=1.0).open()
    text = await failure(session, "x = 5\nprint('started')\nimport time; time.sleep(60)")
    assert text.startswith("started\n")
    assert "[Timed out: the code was interrupted after 1 seconds. Variables are kept.]" in text
    assert await output_of(session, "x") == "5"


async def test_code_that_ignores_the_interrupt_is_killed_and_files_are_kept(make_tool: MakeTool) -> None:
    session = make_tool(timeout=1.0, grace=0.5).open()
    source = f'x = 5; open("/mnt/data/kept.txt", "w").write("kept")\n{STUBBORN}'
    assert "Timed out after 1 seconds, and the kernel was killed" in await failure(session, source)
    assert await session.read("kept.txt") == b"kept"
    assert "NameError" in await output_of(session, "x")
    assert await output_of(session, "print(open('kept.txt').read())") == "kept"


@pytest.mark.parametrize("death", ["os._exit(3)", "os.kill(os.getpid(), 9)", "ctypes.string_at(0)"])
async def test_a_dead_kernel_is_reported_and_replaced(session: PythonSession, death: str) -> None:
    words = "The kernel died: its process ended. Variables and imports of earlier calls are gone"
    assert words in await failure(session, f"import ctypes, os; {death}")
    assert await output_of(session, "1 + 1") == "2"


async def test_a_kernel_that_dies_between_calls_is_reported_at_the_next(session: PythonSession) -> None:
    await call(session, "import os, threading; threading.Timer(0.2, lambda: os._exit(1)).start()")
    await asyncio.sleep(0.6)
    output = await call(session, "print('on')")
    assert not output.failed
    assert output.text.startswith("[The kernel was restarted: its process had ended between calls.")
    assert output.text.endswith("on\n")


async def test_a_cancelled_call_stops_its_code(make_tool: MakeTool) -> None:
    session = make_tool(timeout=120.0, grace=60.0).open()  # a busy machine interrupts late
    source = "import time; n = 0\nopen('/mnt/data/begun', 'w').close()\nwhile True: n += 1; time.sleep(0.01)"
    running = asyncio.create_task(call(session, source))
    await until_found(session.files, bool)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running  # the code would run forever
    first = await output_of(session, "n")
    await asyncio.sleep(0.2)
    assert await output_of(session, "n") == first


async def test_a_cancelled_call_that_does_not_stop_is_killed(session: PythonSession) -> None:
    running = asyncio.create_task(call(session, STUBBORN))
    await until_found(session.files, bool)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert "the call before was cancelled and did not stop" in await output_of(session, "1")


async def test_a_call_cancelled_while_the_kernel_starts_leaves_nothing(make_tool: MakeTool) -> None:
    before = processes()
    everywhere = launchers()
    tool = make_tool()
    session = tool.open()
    for number in range(10):
        running = asyncio.create_task(call(session, "1"))
        await asyncio.sleep(0.04 * number)
        running.cancel()
        await asyncio.wait({running})
        if number % 3:
            await session.retire("the test wants a start")
    assert (await output_of(session, "print(1 + 1)")).endswith("2")
    await tool.close()
    assert processes() == before
    assert launchers() <= everywhere  # nor was one orphaned to init


async def test_a_flood_is_cut_in_the_middle_and_the_kernel_stays_usable(session: PythonSession) -> None:
    output = await call(session, "for i in range(300_000): print(i, flush=i % 60 == 0)\nprint('end')")
    assert output.text.startswith("0\n1\n2\n")
    assert output.text.endswith("299999\nend\n")
    assert "characters of output were cut here" in output.text
    assert len(output.text) < 20_200
    assert await output_of(session, "1") == "1"


async def test_a_host_that_reads_late_loses_no_output(
    session: PythonSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await output_of(session, "1") == "1"
    running = asyncio.create_task(call(session, "for i in range(4000): print(i, flush=True)\nprint('end')"))
    await asyncio.sleep(0.1)
    time.sleep(2)  # noqa: ASYNC251 (nothing is read, and the code would be done)
    assert (await running).text == "".join(f"{number}\n" for number in range(4000)) + "end\n"
    monkeypatch.setattr("tools.python.kernel._TURN", 0)
    monkeypatch.setattr("tools.python.kernel._REST", 300)  # the outputs follow the code by seconds
    assert len((await call(session, "for i in range(90): print(i, flush=True)")).text.split()) == 90


@pytest.mark.parametrize(
    "source", ["print('x' * 50_000_000)", "'x' * 20_000_000", "raise ValueError('x' * 20_000_000)"]
)
async def test_one_huge_output_is_cut(session: PythonSession, source: str) -> None:
    output = await call(session, source)
    assert not output.failed
    assert "characters of output were cut here" in output.text
    assert len(output.text) < 20_200
    assert await output_of(session, "1") == "1"


async def test_files_go_in_and_out(session: PythonSession) -> None:
    assert await session.files() == []
    with pytest.raises(FileRefused):
        await session.read("missing")
    await session.write("folder/in.txt", b"hello")
    assert await output_of(session, "print(open('folder/in.txt').read())") == "hello"
    await call(session, "open('out.bin', 'wb').write(bytes(range(256)))")
    files = [(info.path, info.size) for info in await session.files()]
    assert files == [("folder/in.txt", 5), ("out.bin", 256)]
    assert await session.read("/mnt/data/out.bin") == bytes(range(256))


async def test_a_file_is_removed_while_code_runs(session: PythonSession) -> None:
    with pytest.raises(FileRefused, match="nothing has been written yet"):
        await session.remove("missing")
    await session.write("folder/in.txt", b"hello")
    running = asyncio.create_task(call(session, "open('out.txt', 'w').close()\nimport time; time.sleep(60)"))
    await until_found(session.files, lambda files: len(files) == 2)
    await session.remove("folder/in.txt")
    assert [info.path for info in await session.files()] == ["out.txt"]
    assert not running.done()
    running.cancel()
    await asyncio.wait({running})


async def test_a_removal_leaves_the_report_of_a_restart_to_the_next_call(session: PythonSession) -> None:
    await session.write("in.txt", b"hello")
    await session.retire("the test wants a start")
    await session.remove("in.txt")
    text = await output_of(session, "import os; print(os.listdir('/mnt/data'))")
    assert "The kernel was restarted: the test wants a start" in text
    assert text.endswith("[]")


async def test_a_kernel_started_for_a_file_yields_its_place_to_a_waiting_session(make_tool: MakeTool) -> None:
    tool = make_tool(max_kernels=1)
    first, second = tool.open(), tool.open()
    async with asyncio.timeout(30.0):  # half the time that a session waits for a place
        _, answer = await asyncio.gather(first.write("a", b"x"), output_of(second, "1 + 1"))
    assert answer == "2"


async def test_a_file_beyond_the_space_is_refused_in_words(session: PythonSession) -> None:
    with pytest.raises(FileRefused, match="no space left"):
        await session.write("big", b"x" * (21 * 1024 * 1024))
    assert await session.files() == []


async def test_the_least_used_kernel_gives_way_and_its_session_reports_it(make_tool: MakeTool) -> None:
    tool = make_tool(max_kernels=2)
    first, second, third = tool.open(), tool.open(), tool.open()
    await call(first, "x = 1")
    await call(second, "x = 2")
    assert await output_of(first, "x") == "1"
    assert await output_of(third, "3") == "3"
    assert await output_of(first, "x") == "1"
    assert "another conversation needed its place" in await output_of(second, "2")


async def test_a_session_closed_while_its_kernel_starts_runs_nothing(session: PythonSession) -> None:
    for pause in (0.01, 0.1, 0.3):
        running = asyncio.create_task(call(session, "import time; time.sleep(600)"))
        await asyncio.sleep(pause)
        began = time.monotonic()
        await session.close()
        assert time.monotonic() - began < 60
        assert (await running).failed


async def test_a_closed_session_runs_nothing(session: PythonSession) -> None:
    await session.close()
    assert "the session is closed" in await failure(session, "1")


def test_the_declaration_states_the_time_limit_and_no_internet(sandbox: Sandbox) -> None:
    declared = PythonTool(sandbox, timeout=30).declaration
    assert declared.namespace == "python"
    assert declared.functions == ()
    assert "time out after 30.0 seconds" in (declared.description or "")
    assert "Internet access for this session is disabled." in (declared.description or "")
