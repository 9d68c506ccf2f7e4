"""File search through the official SDK: the model searches, opens, reads on and cites; the API shows it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import openai
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.keyed import ALICE, MALLORY, key_file
from tests.doubles.serving import scripted, serving
from tests.doubles.stored import known
from tests.doubles.tools.web_servers import pdf

CALL = "<|channel|>analysis to=browser.{} code<|message|>{}<|call|>"
SEARCH, OPEN = CALL.format("search", '{"query": "When is high water?"}'), CALL.format("open", '{"id": 0}')
FIND = CALL.format("find", '{"pattern": "three"}')
FINAL = "<|channel|>final<|message|>It is at three【1†L6-L7】.<|return|>"
RULES = "\n".join(f"Rule {number}: keep to the right." for number in range(300))


@pytest.fixture
def site(tmp_path: Path) -> Path:
    (tmp_path / "fjord.md").write_text("# The fjord\n\nHigh water is not in the fjord.\n")
    return tmp_path


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(SEARCH, OPEN, FIND, FINAL), Settings(served_model_name=("x",))) as base:
        yield base


def filled(client: openai.OpenAI) -> tuple[str, str]:
    """A vector store, and the file in it that has the answer."""
    store = client.vector_stores.create().id
    tides = ("tides.pdf", pdf("Low water is at nine.", "High water is at three."))
    files: Any = [tides, ("rules.md", RULES.encode())]
    client.vector_stores.file_batches.upload_and_poll(store, files=files, poll_interval_ms=20)
    found = [file.id for file in client.files.list() if file.filename == "tides.pdf"]
    return store, found[0]


@pytest.fixture
def claude(url: str) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none") as made:
        yield made


def test_a_streamed_answer_shows_searches_and_cites_the_file(client: openai.OpenAI) -> None:
    store, tides = filled(client)
    tool: Any = {"type": "file_search", "vector_store_ids": [store], "max_num_results": 5}
    asked: Any = {"model": "x", "input": "When is high water?", "tools": [tool]}
    with client.responses.stream(**asked, include=["file_search_call.results"]) as stream:
        events = list(stream)
        response = stream.get_final_response()
    kinds = [event.type for event in events if "file_search" in event.type]
    call = ["in_progress", "searching", "completed"]
    assert kinds == [f"response.file_search_call.{step}" for step in call * 3]
    assert any(event.type == "response.output_text.annotation.added" for event in events)
    search, opened, found, message = response.output
    assert search.type == opened.type == found.type == "file_search_call"
    assert (search.status, search.queries) == ("completed", ["When is high water?"])
    best = known(search.results)[0]
    assert (best.file_id, best.filename) == (tides, "tides.pdf")
    assert "High water is at three." in str(best.text)
    assert found.queries == ["three"]
    assert message.type == "message"
    part: Any = message.content[0]
    assert part.text == "It is at three (tides.pdf)."
    [cited] = part.annotations
    assert (cited.type, cited.file_id, cited.filename) == ("file_citation", tides, "tides.pdf")
    assert part.text[cited.index :] == " (tides.pdf)."
    without = client.responses.create(**asked)
    assert without.output[0].results is None  # type: ignore[union-attr]
    again: Any = [item.model_dump(exclude_none=True) for item in response.output]
    client.responses.create(model="x", input=[*again, {"role": "user", "content": "Sure?"}], tools=[tool])
    client.responses.create(model="x", input="Sure?", previous_response_id=without.id, tools=[tool])


def test_chat_completions_cite_files_too(client: openai.OpenAI) -> None:
    store, _ = filled(client)
    tools: Any = [{"type": "file_search", "vector_store_ids": [store]}]
    asked: Any = [{"role": "user", "content": "When is high water?"}]
    answer: Any = client.chat.completions.create(model="x", messages=asked, tools=tools).choices[0].message
    assert answer.content == "It is at three (tides.pdf)."
    [cited] = answer.annotations
    assert dict(cited)["file_citation"]["file_id"] in {file.id for file in client.files.list()}


def test_messages_show_files_as_pages_that_come_back(
    client: openai.OpenAI, claude: anthropic.Anthropic
) -> None:
    store, tides = filled(client)
    tool: Any = {"type": "file_search", "name": "file_search", "vector_store_ids": [store], "max_uses": 9}
    asked: Any = {"model": "x", "max_tokens": 900, "tools": [tool]}
    question: Any = {"role": "user", "content": "When is high water?"}
    with claude.messages.stream(**asked, messages=[question]) as stream:
        message = stream.get_final_message()
    search, results, opened, page, found, _, answer = message.content
    page_of_file = f"file-search://{tides}/tides.pdf"
    assert search.type == opened.type == found.type == "server_tool_use"
    assert (search.name, search.input) == ("web_search", {"query": "When is high water?"})
    assert (opened.name, opened.input) == ("web_fetch", {"url": page_of_file})
    assert found.input == {"url": page_of_file, "pattern": "three"}
    assert results.type == "web_search_tool_result"
    assert isinstance(results.content, list)
    assert (results.content[0].url, results.content[0].title) == (page_of_file, "tides.pdf")
    assert page.type == "web_fetch_tool_result"
    assert "High water is at three." in page.content.content.source.data  # type: ignore[union-attr]
    assert answer.type == "text"
    assert answer.text == "It is at three (tides.pdf)."
    [cited] = answer.citations or ()
    assert cited.type == "web_search_result_location"
    assert (cited.url, cited.title) == (page_of_file, "tides.pdf")
    again: Any = {"role": "assistant", "content": [each.model_dump() for each in message.content]}
    claude.messages.create(**asked, messages=[question, again, question])
    chosen: Any = {"type": "tool", "name": "file_search"}
    with pytest.raises(anthropic.BadRequestError, match=r"tools\[0\].vector_store_ids"):
        claude.messages.create(**{**asked, "tools": [{**tool, "vector_store_ids": []}]}, messages=[question])
    forced = claude.messages.create(**asked, messages=[question], tool_choice=chosen)
    assert forced.content[0].type == "server_tool_use"


def test_files_and_the_web_are_two_sources_of_one_tool(site: Path) -> None:
    final = "<|channel|>final<|message|>A【1†L6】 b【2†L2】.<|return|>"
    second = CALL.format("open", '{"cursor": 0, "id": 1}')
    with client_of(SEARCH, OPEN, second, final, settings=Settings(browser=f"local:{site}")) as client:
        store, _ = filled(client)
        tools: Any = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": [store]}]
        answer = client.responses.create(model="scripted", input="When is high water?", tools=tools)
        assert [item.type for item in answer.output] == ["web_search_call"] * 3 + ["message"]
        annotations = answer.output[-1].content[0].annotations  # type: ignore[union-attr]
        assert [each.type for each in annotations] == ["file_citation", "url_citation"]
        only_web = client.responses.create(model="scripted", input="Hi", tools=[{"type": "web_search"}])
        assert "tides.pdf" not in only_web.output_text


@pytest.mark.parametrize(
    ("tool", "param", "why"),
    [
        ({}, "tools[0].vector_store_ids", "a list of 1 to 20 ids"),
        ({"vector_store_ids": ["vs_x"]}, "tools", "There is no vector store 'vs_x'"),
        ({"vector_store_ids": ["vs_x"], "max_num_results": 99}, "tools[0].max_num_results", "from 1 to 50"),
        ({"vector_store_ids": ["v"], "filters": {"type": "x"}}, "tools[0].filters", "must be a condition"),
        (
            {"vector_store_ids": ["v"], "ranking_options": {"hybrid_search": {"text_weight": 1}}},
            "tools[0].ranking_options",
            "`hybrid_search.embedding_weight` is missing",
        ),
    ],
)
def test_a_wrong_tool_names_its_field(client: openai.OpenAI, tool: Any, param: str, why: str) -> None:
    tools: Any = [{"type": "file_search", **tool}]
    with pytest.raises(openai.APIStatusError, match=why) as refused:
        client.responses.create(model="x", input="Hi", tools=tools)
    assert refused.value.param == param


def test_without_a_web_a_web_search_is_refused_as_before(client: openai.OpenAI) -> None:
    store, _ = filled(client)
    tools: Any = [{"type": "web_search"}, {"type": "file_search", "vector_store_ids": [store]}]
    for wanted in (tools, tools[:1]):
        with pytest.raises(openai.BadRequestError, match="The browser is off"):
            client.responses.create(model="x", input="Hi", tools=wanted)


def test_a_key_searches_its_own_stores_alone(tmp_path: Path) -> None:
    settings = Settings(api_key_file=key_file(tmp_path))
    with client_of(SEARCH, OPEN, FIND, FINAL, settings=settings) as client:
        alice, mallory = (client.with_options(api_key=key) for key in (ALICE, MALLORY))
        store, _ = filled(alice)
        tools: Any = [{"type": "file_search", "vector_store_ids": [store]}]
        asked: Any = {"model": "scripted", "input": "When is high water?", "tools": tools}
        assert "tides.pdf" in alice.responses.create(**asked).output_text
        with pytest.raises(openai.NotFoundError, match="There is no vector store"):
            mallory.responses.create(**asked)
