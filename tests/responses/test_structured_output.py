"""Structured output end to end: enforced by engines that take grammars, checked afterwards otherwise."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import pytest
from openai import OpenAI
from pydantic import BaseModel

from gpt_oss_server.apis.responses.request import parse_request
from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.constraints import binding
from gpt_oss_server.constraints.binding import bind
from gpt_oss_server.constraints.matcher import Grammars, GrammarsMissing
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import answer_format
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import MESSAGE, Encoding
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.toolset.bound import HostedTools, ServerTools
from gpt_oss_server.toolset.choice import wanted_of
from inference.engine import Engine
from inference.local.engine import load_local
from tests.doubles.apis.services import responses_service
from tests.doubles.harmony.sampling import RandomEngine, allowed, closing_tokens
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.lints import check_stream
from tests.doubles.serving import scripted, serving
from tools.tool import Declaration, Function

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
TOOL = {"type": "function", "name": "look", "parameters": CITY, "strict": True}
LOOSE = {"type": "function", "name": "see", "parameters": CITY}
FINAL = "<|channel|>final<|message|>{}<|return|>"
FITS = FINAL.format('{"name":"東京","size":14}')
CALL = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"


@pytest.fixture
def random_engine(encoding: Encoding) -> RandomEngine:
    return RandomEngine(encoding)


async def run_of(engine: Engine, **request: Any) -> Run:
    run = await responses_service(engine).start(LOCAL, {"input": "Hi", **request})
    events = [event async for batch in run.events() for event in batch]
    if run.response["status"] != "failed":  # invalid_output is a code that the SDK's types do not list
        check_stream(events)
    assert events[-1]["type"] == f"response.{run.response['status']}"
    return run


def text_of(run: Run) -> str:
    return "".join(
        part["text"]
        for item in run.response["output"]
        if item["type"] == "message" and item["phase"] == "final_answer"
        for part in item["content"]
    )


def calls_of(run: Run) -> list[dict[str, Any]]:
    return [item for item in run.response["output"] if item["type"] == "function_call"]


@pytest.mark.parametrize("strict", [True, False, None])
async def test_an_answer_is_bound_to_its_schema_strict_or_not(
    random_engine: RandomEngine, strict: bool | None
) -> None:
    wanted = {**FORMAT, "strict": strict}
    for _ in range(5):
        run = await run_of(random_engine, text={"format": wanted})
        assert run.response["status"] == "completed"
        assert run.response["text"]["format"] == wanted, "echoed as it was sent"
        assert set(json.loads(text_of(run))) == {"name", "size"}


async def test_json_object_is_an_object(random_engine: RandomEngine) -> None:
    for _ in range(5):
        run = await run_of(random_engine, text={"format": {"type": "json_object"}}, max_output_tokens=2_000)
        assert run.response["status"] == "incomplete" or isinstance(json.loads(text_of(run)), dict)


async def test_the_prompt_declares_the_schema() -> None:
    rendered = await responses_service(scripted(FITS)).render(
        LOCAL, {"input": "Hi", "text": {"format": FORMAT}}
    )
    assert '# Response Formats\n\n## city\n\n{"type":"object","properties"' in rendered.text


CHOICES: list[tuple[Any, str]] = [
    ("required", "look see"),
    ({"type": "function", "name": "see"}, "see"),
    ({"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "look"}]}, "look"),
]


@pytest.mark.parametrize(("choice", "callable_names"), CHOICES, ids=["required", "named", "allowed_tools"])
async def test_a_required_call_is_made(random_engine: RandomEngine, choice: Any, callable_names: str) -> None:
    for _ in range(10):
        run = await run_of(random_engine, tools=[TOOL, LOOSE], tool_choice=choice, max_output_tokens=2_000)
        assert run.response["tool_choice"] == choice
        if run.response["status"] == "completed":
            (call,) = calls_of(run)
            assert call["name"] in callable_names.split()
            assert isinstance(json.loads(call["arguments"]), dict)


async def test_the_arguments_of_a_strict_function_fit_its_schema(random_engine: RandomEngine) -> None:
    for _ in range(10):
        run = await run_of(random_engine, tools=[TOOL], tool_choice="required")
        (call,) = calls_of(run)
        assert set(json.loads(call["arguments"])) == {"name", "size"}


@pytest.mark.parametrize(
    "choice",
    ["none", {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "see"}]}],
    ids=["none", "allowed_tools"],
)
async def test_a_forbidden_tool_is_not_called(random_engine: RandomEngine, choice: Any) -> None:
    for _ in range(20):
        run = await run_of(random_engine, tools=[TOOL, LOOSE], tool_choice=choice)
        assert {call["name"] for call in calls_of(run)} <= ({"see"} if choice != "none" else set())


UNFIT = [
    ({"text": {"format": FORMAT}}, FINAL.format("Tokyo, 14"), "is not JSON"),
    ({"text": {"format": FORMAT}}, FINAL.format('{"name":"Tokyo"}'), "'size' is missing"),
    ({"text": {"format": FORMAT}}, FINAL.format('{"name":"Tokyo","size":0}'), "minimum 1"),
    ({"text": {"format": {"type": "json_object"}}}, FINAL.format("[1]"), "not of type object"),
    ({"tools": [TOOL]}, CALL.format("look", '{"name":1,"size":2}'), "1 at name is not of type string"),
    ({"tools": [TOOL], "tool_choice": "required"}, FINAL.format("No."), "called none"),
]


@pytest.mark.parametrize(("request_", "turn", "part"), UNFIT, ids=[part for _, _, part in UNFIT])
async def test_output_that_does_not_fit_fails_and_keeps_its_text(
    request_: dict[str, Any], turn: str, part: str
) -> None:
    run = await run_of(scripted(turn), **request_)
    assert run.response["status"] == "failed"
    assert "invalid_output" in run.response["error"]["message"]
    assert part in run.response["error"]["message"]
    (item,) = run.response["output"]
    text = item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]
    assert text in turn
    assert item["status"] == "completed"


FIT = [
    ({"text": {"format": FORMAT}}, FITS),
    ({"text": {"format": FORMAT}, "tools": [TOOL]}, CALL.format("look", '{"size":1,"name":""}')),
    ({"tools": [LOOSE], "tool_choice": "required"}, CALL.format("see", '{"anything":1}')),
]


@pytest.mark.parametrize(("request_", "turn"), FIT, ids=["answer", "call instead", "loose call"])
async def test_output_that_fits_completes(request_: dict[str, Any], turn: str) -> None:
    assert (await run_of(scripted(turn), **request_)).response["status"] == "completed"


async def test_an_answer_cut_short_is_incomplete_not_invalid() -> None:
    run = await run_of(scripted(FITS), text={"format": FORMAT}, max_output_tokens=5)
    assert run.response["status"] == "incomplete"


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (
        {"text": {"format": {**FORMAT, "schema": {"properties": {"a": {"uniqueItems": True}}}}}},
        "text.format.schema",
        "at `properties.a.uniqueItems`: the keyword 'uniqueItems' is not enforced",
    ),
    ({"tools": [LOOSE, {**TOOL, "parameters": {"not": {}}}]}, "tools[1].parameters", "the keyword 'not'"),
    ({"text": {"format": {"type": "xml"}}}, "text.format", "'xml' is not served"),
    ({"text": {"format": {"type": "json_schema", "schema": CITY}}}, "text.format.name", "must be a string"),
    ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format.schema", "JSON schema object"),
    ({"text": {"format": {"type": "json_schema", "json_schema": FORMAT}}}, "text.format.json_schema", "Chat"),
    ({"tool_choice": "always"}, "tool_choice", "'required' or an object"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "`tools` does not declare"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", "does not declare"),
    ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice", "does not declare"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "list of tools"),
    (
        {"tools": [TOOL], "tool_choice": {"type": "allowed_tools", "mode": "x", "tools": [TOOL]}},
        "tool_choice.mode",
        "'auto' or 'required'",
    ),
]


@pytest.mark.parametrize(("request_", "param", "part"), REFUSED, ids=[part for *_, part in REFUSED])
async def test_an_unsupported_form_is_refused_before_generation(
    request_: dict[str, Any], param: str, part: str
) -> None:
    with pytest.raises(ApiError) as refused:
        await responses_service(scripted(FITS)).start(LOCAL, {"input": "Hi", **request_})
    assert refused.value.status == 400
    assert refused.value.param == param
    assert part in refused.value.message


def hosted(*namespaces: str) -> HostedTools:
    """The tools of a request with these hosted tools and an MCP server."""
    declarations = (
        *(Declaration(name, None, (Function("search"),) if name == "browser" else ()) for name in namespaces),
        Declaration("docs", None, (Function("ask"), Function("find"))),
    )
    servers = ServerTools(names={"docs.ask": ("docs", "ask"), "docs.find": ("docs", "find")})
    return HostedTools(Kinds.of(), declarations=declarations, servers=servers)


TOOL_CHOICES: list[tuple[Any, set[str]]] = [
    ({"type": "web_search_preview"}, {"browser.search"}),
    ({"type": "code_interpreter"}, {"python"}),
    ({"type": "mcp", "server_label": "docs"}, {"docs.ask", "docs.find"}),
    ({"type": "mcp", "server_label": "docs", "name": "find"}, {"docs.find"}),
    ({"type": "function", "name": "see"}, {"functions.see"}),
]


@pytest.mark.parametrize(("choice", "recipients"), TOOL_CHOICES, ids=range(len(TOOL_CHOICES)))
def test_a_choice_of_any_tool_names_its_recipients(choice: Any, recipients: set[str]) -> None:
    request = parse_request({"input": "Hi", "tools": [LOOSE], "tool_choice": choice})
    tools = Kinds.of().read_tools(request.tools or (), offered=True)
    wanted = wanted_of(request.tool_choice, answer_format(None), tools, hosted("browser", "python"))
    assert wanted.must_call
    assert wanted.only == recipients


async def test_after_a_hosted_call_the_model_may_answer(encoding: Encoding) -> None:
    wanted = Wanted(declarations=hosted("python").declarations, must_call=True)
    bound = bind(wanted, encoding, enforces=True)
    assert bound.grammar is not None
    assert bound.later is not None
    channel, *_ = encoding.encode_special("<|channel|>")
    final = encoding.encode("final")[0]
    may = []
    for grammar in (bound.grammar, bound.later):
        state = grammar.start()
        state.accept(channel)
        may.append(bool(allowed(state.mask())[final]))
    assert may == [False, True]


async def test_a_required_call_without_tools_is_refused(random_engine: RandomEngine) -> None:
    with pytest.raises(ApiError, match="no tool can be called"):
        await run_of(random_engine, tool_choice="required")


async def test_without_llguidance_only_a_schema_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def missing(encoding: Encoding) -> Grammars:
        raise GrammarsMissing("Grammars need llguidance. Install it.")

    monkeypatch.setattr(binding, "grammars_of", missing)
    service = responses_service(scripted(FITS))
    with pytest.raises(ApiError, match="Install it") as refused:
        await service.start(LOCAL, {"input": "Hi", "text": {"format": FORMAT}})
    assert refused.value.status == 400
    assert refused.value.param == "text.format.schema"
    assert binding.bind(binding.Wanted(), service.served.model.encoding, enforces=True) == binding.Binding()
    assert (await run_of(scripted(FITS), tools=[LOOSE])).response["status"] == "completed"


def test_the_lack_of_llguidance_is_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, encoding: Encoding
) -> None:
    def missing(encoding: Encoding) -> Grammars:
        raise GrammarsMissing("Install it here.")

    monkeypatch.setattr(binding, "grammars_of", missing)
    for _ in range(2):  # before the application exists, and when it starts
        binding.make_ready(encoding).join()
    assert [each.getMessage().rpartition(". ")[2] for each in caplog.records] == ["Install it here."]


class City(BaseModel):
    name: str
    size: int
    kind: Literal["town", "city"] | None


def test_the_sdk_parses_an_answer_that_fits() -> None:
    turn = FINAL.format('{"name":"東京","size":14,"kind":"city"}')
    with serving(scripted(turn)) as url, OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        parsed = client.responses.parse(model="scripted", input="Hi", text_format=City)
    assert parsed.output_parsed == City(name="東京", size=14, kind="city")


def test_the_sdk_receives_the_text_and_error_of_an_answer_that_does_not_fit() -> None:
    wanted: Any = {"format": FORMAT}
    with (
        serving(scripted(FINAL.format("Tokyo"))) as url,
        OpenAI(base_url=url, api_key="any", max_retries=0) as client,
    ):
        response = client.responses.create(model="scripted", input="Hi", text=wanted)
    assert response.status == "failed"
    assert response.output_text == "Tokyo"
    assert response.error is not None
    assert (response.error.code, "invalid_output" in response.error.message) == ("server_error", True)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_random_checkpoint(tmp_path_factory.mktemp("random"), SMALLEST, seed=5)


def test_the_sdk_parses_an_answer_of_the_own_engine_with_random_weights(
    weights: Path, encoding: Encoding
) -> None:
    ends = [*closing_tokens(encoding), *encoding.encode("final"), MESSAGE]
    likely = {str(token): 30.0 for token in ends}  # so that reasoning and texts end
    with (
        serving(load_local(weights, name="random")) as url,
        OpenAI(base_url=url, api_key="any", max_retries=0) as client,
    ):
        for seed in range(3):
            parsed = client.responses.parse(
                model="random",
                input="Hi",
                text_format=City,
                extra_body={"logit_bias": likely, "seed": seed},
                metadata={"__debug": "1"},
            )
            assert isinstance(parsed.output_parsed, City)
            assert parsed.metadata is not None
            assert json.loads(parsed.metadata["__debug_warnings"]) == [], "its turn has no slip"


def test_the_sdk_parses_the_answer_of_a_random_engine(random_engine: RandomEngine) -> None:
    with serving(random_engine) as url, OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        parsed = client.responses.parse(model="random", input="Hi", text_format=City)
    assert isinstance(parsed.output_parsed, City)
