"""The browser over a folder in the response: search, open, find, and an answer whose citations are links."""

import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.sse import encode
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.web_search import WebSearch
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.bound import HostedTools
from gpt_oss_server.toolset.offered import ToolsetMaker
from tests.doubles.apis.asking import browsing_service, responses_service
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.shelf import Shelf
from tools.browser.backends.base import SearchHit, SearchRequest
from tools.tool import Declaration

SEARCH = '<|channel|>analysis to=browser.search code<|message|>{"query":"fjord"}<|call|>'
OPEN = '<|channel|>analysis to=browser.open code<|message|>{"cursor":0,"id":0}<|call|>'
FIND = '<|channel|>analysis to=browser.find code<|message|>{"pattern":"deep"}<|call|>'
ANSWER = "<|channel|>final<|message|>It is deep【1†L0-L2】, and cold【77†L1】. 東京【1†L2】!<|return|>"
WEB: dict[str, Any] = {"tools": [{"type": "web_search"}]}


Browsing = Callable[..., ResponsesService]


@pytest.fixture
async def browsing(encoding: Encoding, tmp_path: Path) -> AsyncIterator[Browsing]:
    """Creates a service whose browser searches a folder, and closes it at the end."""
    made: list[ResponsesService] = []

    def make(*turns: str) -> ResponsesService:
        made.append(browsing_service(tmp_path, scripted(*turns), encoding=encoding))
        return made[-1]

    yield make
    for service in made:
        await service.close()


async def ask(service: ResponsesService, **body: Any) -> list[dict[str, Any]]:
    run = await service.start(LOCAL, {"input": "How deep is the fjord?", **WEB, **body})
    return [event async for batch in run for event in batch]


async def test_search_open_find_and_a_cited_answer(browsing: Browsing) -> None:
    events = await ask(browsing(SEARCH, OPEN, FIND, ANSWER), include=["web_search_call.action.sources"])
    response = check_stream(events)
    search, opened, found, message = response["output"]
    assert (search["action"]["type"], search["action"]["query"]) == ("search", "fjord")
    assert search["action"]["sources"]
    assert opened["action"]["type"] == "open_page"
    assert found["action"] == {"type": "find_in_page", "pattern": "deep", "url": opened["action"]["url"]}
    assert [item["status"] for item in (search, opened, found)] == ["completed"] * 3
    assert "cursor:" not in str(response["output"])
    part = message["content"][0]
    assert "【77†L1】" in part["text"], "a wrong cursor loses no text"
    assert "【1†" not in part["text"]
    assert len(part["annotations"]) == 2
    for annotation in part["annotations"]:
        cited = part["text"][annotation["start_index"] : annotation["end_index"]]
        assert cited == f" ([{annotation['title']}]({annotation['url']}))"
    added = [e for e in events if e["type"] == "response.output_text.annotation.added"]
    assert [e["annotation_index"] for e in added] == [0, 1]
    assert [e["annotation"] for e in added] == part["annotations"]
    first = [e["type"].removeprefix("response.") for e in events if e.get("output_index") == 0]
    steps = [f"web_search_call.{step}" for step in ("in_progress", "searching", "completed")]
    assert first == ["output_item.added", *steps, "output_item.done"]


async def test_cursors_of_an_ended_browser_name_no_other_page(browsing: Browsing) -> None:
    final = "<|channel|>final<|message|>"
    service = browsing(
        SEARCH, OPEN, f"{final}Deep.<|return|>", SEARCH, SEARCH, f"{final}So【0†L2】.<|return|>"
    )
    first = (await ask(service))[-1]["response"]
    stored = await service.stored(LOCAL).retrieve(first["id"])
    (await service.served.toolset()).toolbox.forget(stored.session)
    more = (await ask(service, previous_response_id=first["id"]))[-1]["response"]
    shown = (await service.render(LOCAL, {"input": "And?", "previous_response_id": more["id"], **WEB})).text
    for cursor in range(4):
        assert shown.count(f" to=assistant<|channel|>analysis<|message|>[{cursor}] ") == 1
    assert more["output"][-1]["content"][0]["text"] == "So【0†L2】."


async def test_an_answer_with_a_schema_stays_json_when_it_cites(browsing: Browsing, tmp_path: Path) -> None:
    preamble = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
    answer = '<|channel|>final<|message|>{"answer":"Deep【1†L2】."}<|return|>'
    service = browsing(preamble + SEARCH, OPEN, answer)
    (tmp_path / "fjord.md").write_text('# The "deep" [fjord]\n\nThe fjord is very deep.\n')
    closed = {"additionalProperties": False, "required": ["answer"]}
    schema = {"type": "object", "properties": {"answer": {"type": "string"}}, **closed}
    form = {"type": "json_schema", "name": "fact", "strict": True, "schema": schema}
    response = check_stream(await ask(service, text={"format": form}))
    [part] = response["output"][-1]["content"]
    [annotation] = part["annotations"]
    link = part["text"][annotation["start_index"] : annotation["end_index"]]
    shown = r' ([The "deep" \[fjord\]](local:///fjord.md))'
    assert json.loads(part["text"]) == {"answer": f"Deep{shown}."}
    assert json.loads(f'"{link}"') == shown


async def test_half_a_character_from_a_search_service_does_not_break_a_response(encoding: Encoding) -> None:

    class Halves(Shelf):
        async def search(self, request: SearchRequest) -> list[SearchHit]:
            return [SearchHit("https://a.example/one", "Fjord \ud83d", "deep \ud83d")]

    settings = Settings(browser="off", python="off")
    cites = "<|channel|>final<|message|>Deep【0†L4】.<|return|>"
    tools = ToolsetMaker(settings, Kinds.of(WebSearch(Halves())))
    service = responses_service(scripted(SEARCH, cites), settings, encoding=encoding, tools=tools)
    events = await ask(service, include=["web_search_call.results"])
    response = check_stream(events)
    assert all(map(encode, events))
    assert response["output"][0]["results"][0]["title"] == "Fjord \ufffd"
    assert response["output"][1]["content"][0]["text"] == "Deep ([Fjord \ufffd](https://a.example/one))."
    await service.close()


async def test_a_cut_search_is_a_failed_item(browsing: Browsing) -> None:
    response = check_stream(await ask(browsing(SEARCH), max_output_tokens=9))
    assert (response["status"], response["output"][0]["status"]) == ("incomplete", "failed")


async def test_bad_arguments_are_reported_to_the_model(browsing: Browsing) -> None:
    calls = [
        "<|channel|>analysis to=browser.search code<|message|>not json<|call|>",
        '<|channel|>analysis to=browser.open code<|message|>{"id":5}<|call|>',
        "<|channel|>commentary to=functions.browser.find <|constrain|>json<|message|>{}<|call|>",
        "<|channel|>analysis to=browser.fly code<|message|>{}<|call|>",
    ]
    response = check_stream(await ask(browsing(*calls, ANSWER)))
    assert [item.get("status") for item in response["output"]] == [*["failed"] * 4, "completed"]


async def test_resent_calls_are_rendered_as_the_model_wrote_them(browsing: Browsing) -> None:
    service = browsing(SEARCH, OPEN, FIND, ANSWER)
    response = check_stream(await ask(service, include=["web_search_call.results"], store=False))
    question = {"role": "user", "content": "How deep is the fjord?"}
    shown = (await service.render(LOCAL, {"input": [question, *response["output"]], **WEB})).text
    url = response["output"][1]["action"]["url"]
    written = {"search": '{"query":"fjord"}', "open": f'{{"id":"{url}"}}', "find": '{"pattern":"deep"}'}
    for name, arguments in written.items():
        assert f"<|channel|>analysis to=browser.{name} code<|message|>{arguments}<|call|>" in shown
        assert f"<|start|>browser.{name} to=assistant<|channel|>analysis<|message|>" in shown
    [hit] = response["output"][0]["results"]
    assert f"<|message|>{hit['title']}\n{hit['url']}\n{hit['snippet']}<|end|>" in shown
    assert shown.count("(The result was not kept in this conversation.)") == 2
    odd: list[dict[str, Any]] = [{}, {"type": "search", "query": 5}, {"type": "open_page", "url": None}]
    items = [{"type": "web_search_call", "id": "ws_1", "status": "failed", "action": each} for each in odd]
    assert "to=browser.open code<|message|>{}<|call|>" in (await service.render(LOCAL, {"input": items})).text


BROWSER = Declaration("browser", "", ())


def resumed(encoding: Encoding, *segments: Segment, **more: Any) -> dict[str, Any]:
    hosted = HostedTools(Kinds.of(), **more)
    hosted.resume_from(segments, encoding)
    return dict(hosted.progress.resumed)


def first_cursor(encoding: Encoding, *segments: Segment) -> int:
    more: dict[str, Any] = {"declarations": (BROWSER,), "options": {"browser": {"filters": {}}}}
    return int(resumed(encoding, *segments, **more)["browser"]["first_cursor"])


@pytest.mark.parametrize("newest", [0, 7, 42, 999, 123_456, 999_999_999])
def test_a_session_begins_after_the_newest_cursor(encoding: Encoding, newest: int) -> None:
    renderer = Renderer(encoding)
    results = [
        renderer.tool_result(f"browser.{name}", f"[{cursor}] A page\nIts text", channel="analysis")
        for name, cursor in (("search", 0), ("open", newest), ("find", newest // 2))
    ]
    assert first_cursor(encoding, renderer.user("Hi"), *results, renderer.answer("So.")) == newest + 1


def test_only_results_of_the_browser_count(encoding: Encoding) -> None:
    renderer = Renderer(encoding)
    spelt = "<|start|>browser.search to=assistant<|channel|>analysis<|message|>[9] A page"
    others = [
        renderer.user(spelt),
        renderer.answer("[8] is a note"),
        renderer.tool_result("functions.search", "[7] a hit"),
        renderer.tool_result("browser.open", "There is no cursor 6: [6]", channel="analysis"),
        renderer.tool_result("browser.open", "[1234567890] is too long a number", channel="analysis"),
    ]
    assert first_cursor(encoding, *others) == 0
    assert first_cursor(encoding) == 0


def test_without_a_browser_no_cursor_is_set(encoding: Encoding) -> None:
    result = Renderer(encoding).tool_result("browser.open", "[3] A page", channel="analysis")
    assert not resumed(encoding, result)


FIND_COLD = '<|channel|>analysis to=browser.find code<|message|>{"cursor":1,"pattern":"cold"}<|call|>'
DEEP = "<|channel|>final<|message|>It is deep【1†L0-L2】.<|return|>"
COLD = "<|channel|>final<|message|>It is cold【1†L4-L5】, as found【2†L0】 by search【0†L4】.<|return|>"
TOOLS = [{"type": "web_search"}]


def asked(url: str, **body: Any) -> dict[str, Any]:
    answer = httpx.post(f"{url}/responses", json={"input": "fjord", "tools": TOOLS, **body}, timeout=60)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


def citations(response: dict[str, Any]) -> list[Any]:
    [message] = [item for item in response["output"] if item["type"] == "message"]
    return [(cited["url"], cited["title"]) for cited in message["content"][0]["annotations"]]


@pytest.mark.parametrize("by", ["response", "conversation"])
@pytest.mark.parametrize("second", [[COLD], [FIND_COLD, COLD]], ids=["cites", "finds"])
def test_a_turn_elsewhere_sees_the_pages_of_the_first(tmp_path: Path, by: str, second: list[str]) -> None:
    pages = tmp_path / "pages"
    pages.mkdir()
    (pages / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", browser=f"local:{pages}")

    def turns(first: str, then: str) -> list[Any]:
        body = {}
        if by == "conversation":
            body = {"conversation": httpx.post(f"{first}/conversations", json={}).json()["id"]}
        begun = asked(first, **body)
        ended = asked(then, **(body or {"previous_response_id": begun["id"]}))
        calls = [item["action"] for item in ended["output"] if item["type"] == "web_search_call"]
        return [citations(begun), citations(ended), calls]

    with serving(scripted(SEARCH, OPEN, DEEP, *second), settings) as alone:
        expected = turns(alone, alone)
    with (
        serving(scripted(SEARCH, OPEN, DEEP), settings) as here,
        serving(scripted(*second), settings) as there,
    ):
        assert turns(here, there) == expected
    assert len(expected[1]) >= 2, "the pages of the first turn are cited"
