"""Hosted tools on Chat Completions: they run in mid-completion, and the client sees calls and results."""

from __future__ import annotations

import json
from typing import Any

import pytest

from gpt_oss_server.apis.chat.service import ChatService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.chat_asking import HI, check_chunks, service_of
from tests.doubles.serving import scripted
from tests.doubles.tools.scripted_tool import ANSWER, Calculator, Ready
from tools.tool import Declaration, Function, ToolCall, ToolOutput
from tools.toolbox import Offer, Toolbox

CALL = "<|channel|>analysis to=python code<|message|>2+2<|call|>"


class Browser:
    """A browser that finds the same page for every query."""

    def __init__(self, title: str = "Cats") -> None:
        self.title = title
        self.options: list[dict[str, Any]] = []

    @property
    def declaration(self) -> Declaration:
        return Declaration("browser", "Searches.", (Function("search", "Searches.", {"type": "object"}),))

    def open(self) -> Browser:
        return self

    async def run(self, call: ToolCall) -> ToolOutput:
        self.options.append(dict(call.options))
        return ToolOutput("[0] Cats. L1: They purr.")

    def resolve(self, cursor: int, line: int | None) -> tuple[str, str] | None:
        return ("https://cats.example/", self.title) if cursor == 0 else None

    async def close(self) -> None:
        pass


def serving_tools(*turns: str, title: str = "Cats") -> tuple[ChatService, Toolbox]:
    toolbox = Toolbox([Offer(Calculator()), Offer(Browser(title))])
    return service_of(scripted(*turns), tools=Ready(Toolset(toolbox))), toolbox


PYTHON: dict[str, Any] = {"type": "code_interpreter", "container": {"type": "auto"}}
SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"cats"}<|call|>'
CITES = "<|channel|>final<|message|>Cats purr【0†L1-L2】, it is said.<|return|>"


async def completion_of(service: ChatService, **body: Any) -> dict[str, Any]:
    more = {"stream": True, "stream_options": {"include_usage": True}}
    run = await service.start(LOCAL, {**HI, **more, **body})
    return check_chunks([chunk async for batch in run.chunks() for chunk in batch])


async def message_of(service: ChatService, **body: Any) -> dict[str, Any]:
    return dict((await completion_of(service, **body))["choices"][0]["message"])


@pytest.mark.parametrize(
    "body", [{"tools": [PYTHON]}, {"chat_template_kwargs": {"builtin_tools": ["python"]}}], ids=str
)
async def test_a_call_runs_and_the_completion_continues(encoding: Encoding, body: dict[str, Any]) -> None:
    service, toolbox = serving_tools(CALL, ANSWER)
    completion = await completion_of(service, **body)
    choice = completion["choices"][0]
    ran = {"index": 0, "type": "code_interpreter", "name": "python"}
    assert choice["message"] == {
        "role": "assistant",
        "content": "It is 4.",
        "refusal": None,
        "executed_tools": [{**ran, "arguments": "2+2", "output": "4 (call 1)"}],
    }
    assert choice["finish_reason"] == "stop"
    assert completion["usage"]["completion_tokens"] == len(encoding.encode_special(CALL + ANSWER))
    assert toolbox.sessions["python"] == 0, "no later request continues a chat completion"


@pytest.mark.parametrize("body", [{"web_search_options": {}}, {"tools": [{"type": "web_search"}]}], ids=str)
async def test_citations_become_links_with_annotations(body: dict[str, Any]) -> None:
    preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    message = await message_of(serving_tools(preamble + SEARCH, CITES)[0], **body)
    link = " ([Cats](https://cats.example/))"
    assert message["content"] == f"I look.\n\nCats purr{link}, it is said."
    [annotation] = message["annotations"]
    cited = annotation["url_citation"]
    assert (annotation["type"], cited["url"]) == ("url_citation", "https://cats.example/")
    assert message["content"][cited["start_index"] : cited["end_index"]] == link


async def test_an_answer_of_json_stays_json_with_its_citations() -> None:
    answer = '<|channel|>final<|message|>{"a":"They purr【0†L1】."}<|return|>'
    service, _ = serving_tools(SEARCH, answer, title='The "cats" [sic]')
    form = {"type": "json_object"}
    message = await message_of(service, web_search_options={}, response_format=form)
    link = r' ([The "cats" \[sic\]](https://cats.example/))'
    assert json.loads(message["content"]) == {"a": f"They purr{link}."}
    cited = message["annotations"][0]["url_citation"]
    assert json.loads(f'"{message["content"][cited["start_index"] : cited["end_index"]]}"') == link


async def test_text_before_a_stop_string_is_shown_even_if_it_looks_like_a_citation() -> None:
    message = await message_of(serving_tools(SEARCH, CITES)[0], web_search_options={}, stop="-L2")
    assert message["content"] == "Cats purr【0†L1"


async def test_the_browser_receives_the_search_options_of_this_api() -> None:
    browser = Browser()
    service = service_of(scripted(SEARCH, CITES), tools=Ready(Toolset(Toolbox([Offer(browser)]))))
    where = {"type": "approximate", "approximate": {"country": "DE", "city": "Kiel"}}
    await completion_of(service, web_search_options={"search_context_size": "low", "user_location": where})
    [options] = browser.options
    assert (options["user_location"]["country"], options["search_context_size"]) == ("DE", "low")


async def test_each_choice_has_its_own_sessions() -> None:
    service, toolbox = serving_tools(CALL, CALL, ANSWER, ANSWER)
    completion = await completion_of(service, n=2, tools=[PYTHON])
    outputs = [choice["message"]["executed_tools"][0]["output"] for choice in completion["choices"]]
    assert outputs == ["4 (call 1)", "4 (call 1)"]
    assert toolbox.sessions["python"] == 0


async def test_the_model_reads_that_the_limit_of_calls_is_reached() -> None:
    message = await message_of(serving_tools(CALL, CALL, ANSWER)[0], max_tool_calls=1, tools=[PYTHON])
    ran, refused = (executed["output"] for executed in message["executed_tools"])
    assert ran == "4 (call 1)"
    assert "limit" in refused
