"""The reference has every event and item that a server sends, and none that it does not send.

Other tests compare each event of their streams with the reference too: see `tests/doubles/lints.py`.
"""

import json
from pathlib import Path
from typing import Any

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import Asking, browsing_service, responses_service
from tests.doubles.apis.mcp_asking import call, tool
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.pages import reference
from tests.doubles.serving import scripted
from tests.doubles.tools.scripted_tool import Scripted
from tests.responses.conftest import PYTHON, Echoes, Make, Summariser, with_tool
from tools.tool import ToolCall, ToolOutput

THOUGHT = "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant"
HELLO = "<|channel|>final<|message|>Hello!<|return|>"
FUNCTION = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
SUM = "<|channel|>analysis to=python code<|message|>2+2<|call|>"
LIST = '<|channel|>commentary to=shell.exec code<|message|>{"commands": ["ls"]}<|call|>'
PROGRAM = '<|channel|>commentary to=program.run <|constrain|>json<|message|>{"code": "print(2)"}<|call|>'
PROGRAMS = {"type": "programmatic_tool_calling"}
SHELL = {"type": "shell", "environment": {"type": "container_auto"}}
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
CITED = "<|channel|>final<|message|>It is deep【1†L0-L2】.<|return|>"
SNAPSHOTS = Path(__file__).parent / "snapshots"  # streams of calls that clients run


async def listing(_: ToolCall) -> ToolOutput:
    printed = {"stdout": "a.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    return ToolOutput("", details={"output": [printed]})


async def counting(_: ToolCall) -> ToolOutput:
    return ToolOutput("2")


async def test_the_reference_has_what_servers_send_and_nothing_else(
    encoding: Encoding, tmp_path: Path, url: str, api: Make, echoes: Echoes
) -> None:
    lines = [line for path in SNAPSHOTS.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    sent: list[dict[str, Any]] = [json.loads(line) for line in lines]

    async def send(ask: Any, **body: Any) -> None:
        await ask(**body)
        sent.extend(ask.events)

    include = ["reasoning.encrypted_content"]
    await send(Asking(THOUGHT + HELLO), reasoning={"summary": "auto"}, include=include)
    await send(Asking(FUNCTION), tools=[{"type": "function", "name": "f"}])
    await send(with_tool(scripted(SUM, HELLO)), tools=[PYTHON])
    await send(with_tool(scripted(LIST, HELLO), Scripted(listing, "shell", ("exec",))), tools=[SHELL])
    await send(with_tool(scripted(PROGRAM, HELLO), Scripted(counting, "program", ("run",))), tools=[PROGRAMS])
    ask = echoes(call("echo", text="hi"), call("fail", why="x"), HELLO)
    await send(ask, tools=[tool()])
    await send(ask, tools=[tool(require_approval="always")])
    await send(echoes(HELLO, mcp=()), tools=[tool(url)])  # the request's server is on a private host
    web = browsing_service(tmp_path, scripted(SEARCH, OPEN, CITED))
    run = await web.start(LOCAL, {"input": "Hi", "tools": [{"type": "web_search"}]})
    found = [event async for batch in run for event in batch]
    check_stream(found)
    await web.close()
    renamed = responses_service(scripted(THOUGHT + HELLO), Settings(event_names="open-responses"))
    run = await renamed.start(LOCAL, {"input": "Hi"})
    sent += [*found, *[event async for batch in run for event in batch]]
    roses = [{"role": "user", "content": "I grow roses."}, {"type": "compaction_trigger"}]
    sent += await api(Summariser(encoding)).streamed(input=roses)
    sent += await api(scripted(HELLO)).streamed(max_output_tokens=4)
    sent += await api(ReplayEngine(encoding.encode_special(HELLO), fails_after=2)).streamed()
    sent += await api(scripted(HELLO)).streamed(background=True)
    for event in sent:
        reference.check_event(event)
    in_a_replay = {"error"}  # see test_background
    assert {event["type"] for event in sent} == set(reference.events()) - in_a_replay
    items = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert {item["type"] for item in items} == set(reference.items())
