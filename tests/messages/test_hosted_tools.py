"""Tools that run here: their calls and results are blocks, which later requests bring back."""

from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.apis.messages.service import MessagesService
from gpt_oss_server.errors import ApiError, ToolNotAvailable
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset, ToolsetMaker
from tests.doubles.apis.asking import browsing_service
from tests.doubles.apis.messages_asking import HI, TOOL, Block, blocks, message_of, messages_service
from tests.doubles.engines.replay import TurnsEngine
from tests.doubles.tools.echo_server import serving
from tests.doubles.tools.scripted_tool import Calculator, Ready
from tools.toolbox import Offer, Toolbox

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"id":0}<|call|>'
CITES = "<|channel|>final<|message|>It is deep【1†L2】.<|return|>"
CALL = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
DONE = "<|channel|>final<|message|>Done.<|return|>"
CODE = "<|channel|>analysis to=python code<|message|>2 +\n\t2<|call|>"
WEB: list[Block] = [
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
    {"type": "web_fetch_20250910", "name": "web_fetch"},
]
PYTHON: Block = {"type": "code_execution_20250825", "name": "code_execution"}


def replied(message: Block, *messages: Block) -> list[Block]:
    return [*HI["messages"], {"role": "assistant", "content": message["content"]}, *messages]


async def test_a_search_and_a_page_are_cited_and_come_back(encoding: Encoding, tmp_path: Path) -> None:
    engine = TurnsEngine(encoding, SEARCH, OPEN, CALL, CITES)
    service = MessagesService(browsing_service(tmp_path, engine, encoding=encoding))
    message = await message_of(service, tools=[*WEB, TOOL])
    search, results, fetch, page, call, *_ = message["content"]
    assert (search["name"], search["input"]) == ("web_search", {"query": "fjord"})
    assert results["tool_use_id"] == search["id"]
    [hit] = results["content"]
    assert hit["title"] == "The fjord"
    assert hit["encrypted_content"]
    assert fetch["name"] == "web_fetch"
    assert "The fjord is very deep." in page["content"]["content"]["source"]["data"]
    assert message["usage"]["server_tool_use"] == {"web_search_requests": 1, "web_fetch_requests": 1}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": "ok"}
    answered = replied(message, {"role": "user", "content": [result]})
    await message_of(service, messages=answered, tools=[*WEB, TOOL])
    assert _results(encoding, engine.prompts[3]) == _results(encoding, engine.prompts[2]), "as they were read"
    await service._responses.close()


def _results(encoding: Encoding, prompt: list[int]) -> list[str]:
    return [
        part.partition("<|message|>")[2].partition("<|end|>")[0]
        for part in encoding.decode(prompt).split("<|start|>browser.")[1:]
    ]


async def test_an_answer_cites_what_the_browser_read(encoding: Encoding, tmp_path: Path) -> None:
    engine = TurnsEngine(encoding, SEARCH, OPEN, CITES)
    service = MessagesService(browsing_service(tmp_path, engine, encoding=encoding))
    message = await message_of(service, tools=WEB)
    [citation] = message["content"][-1]["citations"]
    assert citation["url"].endswith("fjord.md")
    assert message["stop_reason"] == "end_turn"
    await service._responses.close()


def calculating(*turns: str, encoding: Encoding) -> tuple[MessagesService, TurnsEngine]:
    engine = TurnsEngine(encoding, *turns)
    return messages_service(engine, tools=Ready(Toolset(Toolbox([Offer(Calculator())])))), engine


async def test_code_runs_and_comes_back(encoding: Encoding) -> None:
    service, engine = calculating(CODE, DONE, DONE, encoding=encoding)
    message = await message_of(service, tools=[PYTHON])
    assert blocks(message) == ["server_tool_use", "code_execution_tool_result", "text"]
    call, result, _ = message["content"]
    assert (call["name"], call["input"]) == ("code_execution", {"code": "2 +\n\t2"})
    assert (result["content"]["stdout"], result["content"]["return_code"]) == ("4 (call 1)", 0)
    open_turn = {"content": [call, result]}
    await message_of(service, messages=replied(open_turn, *HI["messages"]), tools=[PYTHON])
    prompt = encoding.decode(engine.prompts[2])
    assert "2 +\n\t2" in prompt
    assert "<|start|>python to=assistant<|channel|>analysis<|message|>4 (call 1)<|end|>" in prompt


async def test_a_loop_that_the_server_ends_pauses(encoding: Encoding) -> None:
    service, _ = calculating(CODE, encoding=encoding)
    assert (await message_of(service, tools=[PYTHON]))["stop_reason"] == "pause_turn"


async def test_tools_of_an_mcp_server(encoding: Encoding) -> None:
    call = '<|channel|>commentary to=echoes.echo <|constrain|>json<|message|>{"text":"hello"}<|call|>'
    engine = TurnsEngine(encoding, call, DONE, DONE)
    settings = Settings(python="off", browser="off", allow_private_hosts=True)
    service = messages_service(engine, settings, tools=ToolsetMaker(settings))
    with serving() as url:
        body: Block = {"mcp_servers": [{"type": "url", "name": "echoes", "url": url}]}
        message = await message_of(service, **body)
        assert blocks(message) == ["mcp_tool_use", "mcp_tool_result", "text"]
        use, result, _ = message["content"]
        assert (use["server_name"], use["name"], use["input"]) == ("echoes", "echo", {"text": "hello"})
        assert (result["is_error"], result["content"][0]["text"]) == (False, "hello")
        await message_of(service, messages=replied(message, *HI["messages"]), **body)
        assert call.removeprefix("<|channel|>commentary ") in encoding.decode(engine.prompts[2])
        off = {"type": "mcp_toolset", "mcp_server_name": "echoes", "default_config": {"enabled": False}}
        toolset = {**off, "configs": {"fail": {"enabled": True}}}
        await message_of(service, tools=[toolset], **body)
        assert "type fail = " in encoding.decode(engine.prompts[3])
        assert "type echo = " not in encoding.decode(engine.prompts[3])
    unreachable = {"type": "url", "name": "echoes", "url": "http://127.0.0.1:1/mcp"}
    with pytest.raises(ToolNotAvailable, match="cannot be connected to"):
        await message_of(service, mcp_servers=[unreachable])
    await service._responses.close()


@pytest.mark.parametrize("tool", [*WEB, PYTHON], ids=lambda tool: tool["name"])
async def test_a_tool_that_is_off_is_refused(encoding: Encoding, tool: Any) -> None:
    settings = Settings(python="off", browser="off")
    service = messages_service(TurnsEngine(encoding, DONE), settings, tools=ToolsetMaker(settings))
    with pytest.raises(ApiError, match=r"is off\. Start with"):
        await message_of(service, tools=[TOOL, tool])
