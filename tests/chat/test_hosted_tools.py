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
from tests.doubles.apis.chat_tools import CALL, Browser, serving_tools
from tests.doubles.serving import scripted
from tests.doubles.tools.calculator import ANSWER, Calculator, Ready
from tools.toolbox import Offer, Toolbox

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"cats"}<|call|>'
CITES = "<|channel|>final<|message|>Cats purr【0†L1-L2】, it is said.<|return|>"


STREAMED: dict[str, Any] = {"stream": True, "stream_options": {"include_usage": True}}


async def completion_of(service: ChatService, **body: Any) -> dict[str, Any]:
    run = await service.start(
        LOCAL, {**HI, "stream": True, "stream_options": {"include_usage": True}, **body}
    )
    return check_chunks([chunk async for batch in run.chunks() for chunk in batch])


@pytest.mark.parametrize(
    "body",
    [
        {"tools": [{"type": "code_interpreter", "container": {"type": "auto"}}]},
        {"chat_template_kwargs": {"builtin_tools": ["python"]}},
    ],
    ids=["tools", "chat_template_kwargs"],
)
async def test_a_call_runs_and_the_completion_continues(encoding: Encoding, body: dict[str, Any]) -> None:
    service, toolbox = serving_tools(CALL, ANSWER)
    completion = await completion_of(service, **body)
    choice = completion["choices"][0]
    assert choice["message"] == {
        "role": "assistant",
        "content": "It is 4.",
        "refusal": None,
        "executed_tools": [
            {
                "index": 0,
                "type": "code_interpreter",
                "name": "python",
                "arguments": "2+2",
                "output": "4 (call 1)",
            }
        ],
    }
    assert choice["finish_reason"] == "stop"
    assert completion["usage"]["completion_tokens"] == len(encoding.encode_special(CALL + ANSWER))
    assert toolbox.sessions["python"] == 0, "no later request continues a chat completion"


@pytest.mark.parametrize("body", [{"web_search_options": {}}, {"tools": [{"type": "web_search"}]}], ids=str)
async def test_citations_become_links_with_annotations(body: dict[str, Any]) -> None:
    preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    service, _ = serving_tools(preamble + SEARCH, CITES)
    message = (await completion_of(service, **body))["choices"][0]["message"]
    link = " ([Cats](https://cats.example/))"
    assert message["content"] == f"I look.\n\nCats purr{link}, it is said."
    [annotation] = message["annotations"]
    cited = annotation["url_citation"]
    assert annotation["type"] == "url_citation"
    assert message["content"][cited["start_index"] : cited["end_index"]] == link
    assert cited["url"] == "https://cats.example/"


async def test_an_answer_of_json_stays_json_with_its_citations() -> None:
    answer = '<|channel|>final<|message|>{"a":"They purr【0†L1】."}<|return|>'
    service, _ = serving_tools(SEARCH, answer, title='The "cats" [sic]')
    body = {"web_search_options": {}, "response_format": {"type": "json_object"}}
    message = (await completion_of(service, **body))["choices"][0]["message"]
    link = r' ([The "cats" \[sic\]](https://cats.example/))'
    assert json.loads(message["content"]) == {"a": f"They purr{link}."}
    cited = message["annotations"][0]["url_citation"]
    assert json.loads(f'"{message["content"][cited["start_index"] : cited["end_index"]]}"') == link


async def test_text_before_a_stop_string_is_shown_even_if_it_looks_like_a_citation() -> None:
    service, _ = serving_tools(SEARCH, CITES)
    completion = await completion_of(service, web_search_options={}, stop="-L2")
    assert completion["choices"][0]["message"]["content"] == "Cats purr【0†L1"


async def test_the_browser_receives_the_search_options_of_this_api() -> None:
    browser = Browser()
    service = service_of(
        scripted(SEARCH, CITES), tools=Ready(Toolset(Toolbox([Offer(Calculator()), Offer(browser)])))
    )
    where = {"type": "approximate", "approximate": {"country": "DE", "city": "Kiel"}}
    await completion_of(service, web_search_options={"search_context_size": "low", "user_location": where})
    [options] = browser.options
    assert (options["user_location"]["country"], options["search_context_size"]) == ("DE", "low")


async def test_each_choice_has_its_own_sessions() -> None:
    service, toolbox = serving_tools(CALL, CALL, ANSWER, ANSWER)
    completion = await completion_of(service, n=2, tools=[{"type": "code_interpreter"}])
    outputs = [choice["message"]["executed_tools"][0]["output"] for choice in completion["choices"]]
    assert outputs == ["4 (call 1)", "4 (call 1)"]
    assert toolbox.sessions["python"] == 0


async def test_the_model_reads_that_the_limit_of_calls_is_reached() -> None:
    service, _ = serving_tools(CALL, CALL, ANSWER)
    completion = await completion_of(service, max_tool_calls=1, tools=[{"type": "code_interpreter"}])
    outputs = [executed["output"] for executed in completion["choices"][0]["message"]["executed_tools"]]
    assert outputs[0] == "4 (call 1)"
    assert "limit" in outputs[1]
