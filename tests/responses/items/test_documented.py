"""The reference has every event and item that a server sends, and none that it does not send.

Other tests compare each event of their streams with the reference too: see `tests/doubles/lints.py`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.mcp_asking import call, tool
from tests.doubles.apis.services import browsing_service, responses_service
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.lints import check_stream
from tests.doubles.pages import reference
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import ANSWER, Calculator, Ready
from tests.responses.conftest import Echoes, Make, Summariser
from tools.toolbox import Offer, Toolbox

Events = list[dict[str, Any]]
THOUGHT = "<|channel|>analysis<|message|>A greeting.<|end|><|start|>assistant"
HELLO = "<|channel|>final<|message|>Hello!<|return|>"
FUNCTION = '<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>'
PYTHON = "<|channel|>analysis to=python code<|message|>2+2<|call|>"
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
CITED = "<|channel|>final<|message|>It is deep【1†L0-L2】.<|return|>"
SNAPSHOTS = Path(__file__).parent / "snapshots"


def of_snapshots() -> Events:
    """Streams of calls that clients run."""
    lines = [line for path in SNAPSHOTS.glob("*.jsonl") for line in path.read_text("utf-8").splitlines()]
    return [json.loads(line) for line in lines]


async def of_messages() -> Events:
    plain = Asking(THOUGHT + HELLO)
    await plain(reasoning={"summary": "auto"}, include=["reasoning.encrypted_content"])
    function = Asking(FUNCTION)
    await function(tools=[{"type": "function", "name": "f"}])
    renamed = responses_service(scripted(THOUGHT + HELLO), Settings(event_names="open-responses"))
    run = await renamed.start(LOCAL, {"input": "Hi"})
    return [*plain.events, *function.events, *[event async for batch in run for event in batch]]


async def of_hosted_tools(encoding: Encoding, folder: Path) -> Events:
    web = browsing_service(folder, scripted(SEARCH, OPEN, CITED))
    sums = Ready(Toolset(Toolbox([Offer(Calculator(), timeout=5)])))
    python = responses_service(scripted(PYTHON, ANSWER), encoding=encoding, tools=sums)
    events: Events = []
    for service, kind in ((web, "web_search"), (python, "code_interpreter")):
        run = await service.start(LOCAL, {"input": "Hi", "tools": [{"type": kind}]})
        made = [event async for batch in run for event in batch]
        check_stream(made)
        events += made
        await service.close()
    return events


async def of_servers(echoes: Echoes, url: str) -> Events:
    ask = echoes(call("echo", text="hi"), call("fail", why="x"), ANSWER)
    await ask(tools=[tool()])
    events = ask.events
    await ask(tools=[tool(require_approval="always")])
    refused = echoes(ANSWER, mcp=())  # the request's server is on a private host
    await refused(tools=[tool(url)])
    return [*events, *ask.events, *refused.events]


async def of_ends(encoding: Encoding, api: Make) -> Events:
    items = [{"role": "user", "content": "I grow roses."}, {"type": "compaction_trigger"}]
    summary = await api(Summariser(encoding)).streamed(input=items)
    cut = await api(scripted(HELLO)).streamed(max_output_tokens=4)
    failed = await api(ReplayEngine(encoding.encode_special(HELLO), fails_after=2)).streamed()
    queued = await api(scripted(HELLO)).streamed(background=True)
    return [*summary, *cut, *failed, *queued]


async def test_the_reference_has_what_servers_send_and_nothing_else(
    encoding: Encoding, tmp_path: Path, url: str, api: Make, echoes: Echoes
) -> None:
    sent = [
        *of_snapshots(),
        *await of_messages(),
        *await of_hosted_tools(encoding, tmp_path),
        *await of_servers(echoes, url),
        *await of_ends(encoding, api),
    ]
    for event in sent:
        reference.check_event(event)
    in_a_replay = {"error"}  # see test_background
    assert {event["type"] for event in sent} == set(reference.events()) - in_a_replay
    items = [event["item"] for event in sent if event["type"] == "response.output_item.done"]
    assert {item["type"] for item in items} == set(reference.items())
