"""Structured output and forbidden calls: enforced where grammars are, checked afterwards otherwise."""

import json
from typing import Any

import pytest

from gpt_oss_server.apis.responses.request import parse_request
from gpt_oss_server.constraints import binding
from gpt_oss_server.constraints.binding import bind
from gpt_oss_server.constraints.matcher import Grammars, GrammarsMissing
from gpt_oss_server.constraints.wanted import ClientCall, Schema, Wanted
from gpt_oss_server.content.answer_form import answer_format
from gpt_oss_server.errors import ApiError, InvalidOutput
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.toolset.bound import HostedTools, ServerTools
from gpt_oss_server.toolset.choice import wanted_of
from tests.doubles.apis.asking import FINAL, NEXT, Asking, call
from tests.doubles.apis.chat_asking import TOOL as CHAT_TOOL
from tests.doubles.apis.chat_asking import chunks_of, completion_of, message_of, replaying
from tests.doubles.harmony.sampling import RandomEngine, allowed
from tests.doubles.serving import scripted
from tools.tool import Declaration, Function

CITY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "size": {"type": "integer", "minimum": 1}},
    "required": ["name", "size"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "name": "city", "schema": CITY, "strict": True}
SCHEMA: dict[str, Any] = {"text": {"format": FORMAT}}
OBJECT: dict[str, Any] = {"text": {"format": {"type": "json_object"}}}
TOOL = {"type": "function", "name": "look", "parameters": CITY, "strict": True}
LOOSE = {"type": "function", "name": "see", "parameters": CITY}
FITS = FINAL.format('{"name":"東京","size":14}')
LOOK, SEE = ({"type": "function", "name": name} for name in ("look", "see"))
ALLOWED = {"type": "allowed_tools", "mode": "auto", "tools": [SEE]}


@pytest.fixture
def random_ask(encoding: Encoding) -> Asking:
    """Requests to an engine that samples at random within the grammar."""
    return Asking(engine=RandomEngine(encoding))


def answer_in(response: dict[str, Any]) -> Any:
    messages = [item for item in response["output"] if item.get("phase") == "final_answer"]
    return json.loads("".join(part["text"] for item in messages for part in item["content"]))


def calls_in(response: dict[str, Any]) -> list[dict[str, Any]]:
    return [item for item in response["output"] if item["type"] == "function_call"]


@pytest.mark.parametrize("strict", [True, False, None])
async def test_an_answer_is_bound_to_its_schema(random_ask: Asking, strict: bool | None) -> None:
    form = {**FORMAT, "strict": strict}
    for _ in range(5):
        response = await random_ask(text={"format": form}, metadata={"__debug": True})
        assert response["status"] == "completed"
        assert response["text"]["format"] == form, "echoed as it was sent"
        assert set(answer_in(response)) == {"name", "size"}
        assert response["metadata"]["__debug_warnings"] == "[]", "its turn has no slip"


async def test_json_object_is_an_object(random_ask: Asking) -> None:
    for _ in range(5):
        response = await random_ask(**OBJECT, max_output_tokens=2_000)
        assert response["status"] == "incomplete" or isinstance(answer_in(response), dict)


async def test_the_prompt_declares_the_schema() -> None:
    prompt = await Asking(FITS).prompt(**SCHEMA)
    assert '# Response Formats\n\n## city\n\n{"type":"object","properties"' in prompt


CHOICES: list[tuple[Any, set[str]]] = [
    ("required", {"look", "see"}),
    (SEE, {"see"}),
    ({"type": "allowed_tools", "mode": "required", "tools": [LOOK]}, {"look"}),
]


@pytest.mark.parametrize(("choice", "names"), CHOICES, ids=["required", "named", "allowed_tools"])
async def test_a_required_call_is_made_and_fits(random_ask: Asking, choice: Any, names: set[str]) -> None:
    for _ in range(10):
        response = await random_ask(tools=[TOOL, LOOSE], tool_choice=choice, max_output_tokens=2_000)
        assert response["tool_choice"] == choice
        if response["status"] == "completed":
            (made,) = calls_in(response)
            arguments = json.loads(made["arguments"])
            assert made["name"] in names
            assert isinstance(arguments, dict)
            assert made["name"] == "see" or set(arguments) == {"name", "size"}


@pytest.mark.parametrize("choice", ["none", ALLOWED], ids=["none", "allowed_tools"])
async def test_a_forbidden_tool_is_not_called(random_ask: Asking, choice: Any) -> None:
    for _ in range(20):
        response = await random_ask(tools=[TOOL, LOOSE], tool_choice=choice)
        assert {made["name"] for made in calls_in(response)} <= ({"see"} if choice != "none" else set())


UNFIT = [
    (SCHEMA, FINAL.format("Tokyo, 14"), "is not JSON"),
    (SCHEMA, FINAL.format('{"name":"Tokyo"}'), "'\"}' does not fit where it stands"),
    (SCHEMA, FINAL.format('{"name":"Tokyo","size":0}'), "'0}' does not fit"),
    (OBJECT, FINAL.format("[1]"), "'[1]' does not fit"),
    (
        {"tools": [TOOL]},
        call("functions.look", '{"name":1,"size":2}'),
        "for 'functions.look' do not fit its schema",
    ),
    ({"tools": [TOOL], "tool_choice": "required"}, FINAL.format("No."), "called none"),
]


@pytest.mark.parametrize(("body", "turn", "part"), UNFIT, ids=[part for _, _, part in UNFIT])
async def test_output_that_does_not_fit_fails_and_keeps_its_text(body: Any, turn: str, part: str) -> None:
    response = await Asking(turn)(**body)
    assert (response["status"], response["error"]["code"]) == ("failed", "server_error")
    assert "invalid_output" in response["error"]["message"]
    assert part in response["error"]["message"]
    (item,) = response["output"]
    assert (item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"]) in turn
    assert item["status"] == "completed"


FIT = [
    (SCHEMA, FITS),
    ({**SCHEMA, "tools": [TOOL]}, call("functions.look", '{"size":1,"name":""}')),
    ({"tools": [LOOSE], "tool_choice": "required"}, call("functions.see", '{"anything":1}')),
]


@pytest.mark.parametrize(("body", "turn"), FIT, ids=["answer", "call instead", "loose call"])
async def test_output_that_fits_completes(body: dict[str, Any], turn: str) -> None:
    assert (await Asking(turn)(**body))["status"] == "completed"


async def test_an_answer_cut_short_is_incomplete_not_invalid() -> None:
    assert (await Asking(FITS)(**SCHEMA, max_output_tokens=5))["status"] == "incomplete"


def form(**fields: Any) -> dict[str, Any]:
    return {"text": {"format": {"type": "json_schema", **fields}}}


UNIQUE = {"properties": {"a": {"uniqueItems": True}}}
UNENFORCED = "at `properties.a.uniqueItems`: the keyword 'uniqueItems' is not enforced"
MODE = {"type": "allowed_tools", "mode": "x", "tools": [TOOL]}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    (form(name="a", schema=UNIQUE, strict=True), "text.format.schema", UNENFORCED),
    ({"tools": [LOOSE, {**TOOL, "parameters": {"not": {}}}]}, "tools[1].parameters", "the keyword 'not'"),
    ({"text": {"format": {"type": "xml"}}}, "text.format", "'xml' is not served"),
    (form(schema=CITY), "text.format.name", "must be a string"),
    (form(name="a"), "text.format.schema", "JSON schema object"),
    (form(json_schema=FORMAT), "text.format.name", "Chat"),
    ({"tool_choice": "required"}, "tool_choice", "no tool can be called"),
    ({"tool_choice": "always"}, "tool_choice", "'required' or an object"),
    ({"tool_choice": {"type": "function", "name": "f"}}, "tool_choice", "`tools` does not declare"),
    ({"tool_choice": {"type": "web_search"}}, "tool_choice", "does not declare"),
    ({"tool_choice": {"type": "mcp", "server_label": "x"}}, "tool_choice", "does not declare"),
    ({"tool_choice": {"type": "allowed_tools", "tools": []}}, "tool_choice.tools", "list of tools"),
    ({"tools": [TOOL], "tool_choice": MODE}, "tool_choice.mode", "'auto' or 'required'"),
]


@pytest.mark.parametrize(("body", "param", "part"), REFUSED, ids=[part for *_, part in REFUSED])
async def test_an_unsupported_form_is_refused_before_generation(body: Any, param: str, part: str) -> None:
    with pytest.raises(ApiError) as refused:
        await Asking(FITS)(**body)
    assert (refused.value.status, refused.value.param) == (400, param)
    assert part in refused.value.message


QUERY = {"type": "object", "properties": {"query": {"type": "string"}}}


def hosted(*namespaces: str) -> HostedTools:
    """The tools of a request with these hosted tools and an MCP server."""
    search = Function("search", None, QUERY)
    declarations = (
        *(Declaration(name, None, () if name == "python" else (search,)) for name in namespaces),
        Declaration("docs", None, (Function("ask"), Function("find", None, QUERY))),
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


def test_the_tools_that_the_model_was_trained_on_have_no_guide() -> None:
    tools = Kinds.of().read_tools((), offered=True)
    wanted = wanted_of("auto", answer_format(None), tools, hosted("browser", "python", "shell"))
    assert wanted.guides == {"shell.search": QUERY, "docs.find": QUERY}


def test_after_a_hosted_call_the_model_may_answer(encoding: Encoding) -> None:
    wanted = Wanted(declarations=hosted("python").declarations, must_call=True)
    bound = bind(wanted, encoding, enforces=True)
    channel, final = encoding.encode_special("<|channel|>final")
    for grammar, may_answer in ((bound.grammar, False), (bound.later, True)):
        state = grammar.start()
        state.accept(channel)
        assert allowed(state.mask())[final] == may_answer


def test_compiled_grammars_are_kept_for_their_owner_alone(encoding: Encoding) -> None:
    wanted = Wanted(answer=Schema({"enum": ["kept"]}, "text.format.schema"))
    one, again, other = (bind(wanted, encoding, owner=owner, enforces=True) for owner in ("a", "a", "b"))
    assert one.grammar is again.grammar
    assert one.grammar is not other.grammar


def test_schemas_that_together_take_long_are_refused(
    encoding: Encoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binding, "_MOST_SECONDS", 0)
    calls = [ClientCall(f"functions.f{at}", Schema({}, f"tools[{at}]")) for at in range(3)]
    with pytest.raises(ApiError, match="take more than 0 seconds"):
        bind(Wanted(calls), encoding, enforces=True)


@pytest.fixture
def _without_llguidance(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(encoding: Encoding) -> Grammars:
        raise GrammarsMissing("Grammars need llguidance. Install it.")

    monkeypatch.setattr(binding, "grammars_of", missing)


@pytest.mark.usefixtures("_without_llguidance")
async def test_without_llguidance_only_a_schema_is_refused(encoding: Encoding) -> None:
    with pytest.raises(ApiError, match="Install it") as refused:
        await Asking(FITS)(**SCHEMA)
    assert (refused.value.status, refused.value.param) == (400, "text.format.schema")
    assert bind(Wanted(), encoding, enforces=True) == binding.Binding()
    assert (await Asking(FITS)(tools=[LOOSE]))["status"] == "completed"


@pytest.mark.usefixtures("_without_llguidance")
def test_the_lack_of_llguidance_is_logged_once(caplog: pytest.LogCaptureFixture, encoding: Encoding) -> None:
    for _ in range(2):  # before the application exists, and when it starts
        binding.make_ready(encoding).join()
    assert [record.getMessage().rpartition(". ")[2] for record in caplog.records] == ["Install it."]


THINKS = f"<|channel|>analysis<|message|>I could look.<|end|>{NEXT}"
CALL = call("functions.f", '{"city": "Oslo"}')
ANSWER = FINAL.format("Hello!")
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": name, "parameters": {"type": "object", "properties": {}}} for name in "fg"
]
ONLY_G = {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "g"}]}


async def test_a_response_fails_before_it_shows_a_call_that_is_not_among_the_allowed() -> None:
    response = await Asking(THINKS + CALL)(tools=TOOLS, tool_choice=ONLY_G)
    assert response["status"] == "failed"
    (reasoning,) = response["output"]
    assert (reasoning["type"], reasoning["content"][0]["text"]) == ("reasoning", "I could look.")
    assert "'functions.f', which tool_choice does not allow" in response["error"]["message"]


async def test_an_answer_is_free_even_one_that_the_request_begins() -> None:
    response = await Asking(THINKS + ANSWER)(tools=TOOLS, tool_choice="none")
    assert (response["status"], response["output"][-1]["content"][0]["text"]) == ("completed", "Hello!")
    body: dict[str, Any] = {"tools": [CHAT_TOOL], "tool_choice": "none", "continue_final_message": True}
    begun = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello,"}]
    completion = await completion_of(scripted(" world!<|return|>"), messages=begun, **body)
    assert message_of(completion)["content"] == " world!"


async def test_a_cut_header_of_a_forbidden_call_shows_nothing() -> None:
    ask = Asking(THINKS + CALL)
    for limit in range(9, 22):
        response = await ask(tools=TOOLS, tool_choice=ONLY_G, max_output_tokens=limit)
        assert {item["type"] for item in response["output"]} <= {"reasoning"}


@pytest.mark.parametrize("forbidden", [call("functions.f", "{}"), CALL], ids=["whole", "begun"])
async def test_the_next_turn_reads_no_call_without_a_result(forbidden: str) -> None:
    ask = Asking(forbidden, ANSWER)
    failed = await ask(tools=TOOLS, tool_choice="none")
    prompt = await ask.prompt(previous_response_id=failed["id"], input="And now?", tools=TOOLS)
    assert prompt.count("<|start|>functions.f to=assistant") == prompt.count("to=functions.f")


@pytest.mark.parametrize("per_step", [1, 3, 100])
async def test_a_chat_completion_has_the_text_of_a_call_that_none_forbids(per_step: int) -> None:
    engine = replaying(THINKS + CALL, per_step=per_step)
    deltas = [
        choice["delta"]
        for chunk in await chunks_of(engine, tools=[CHAT_TOOL], tool_choice="none")
        for choice in chunk["choices"]
    ]
    assert not any("tool_calls" in delta for delta in deltas)
    assert "".join(delta.get("reasoning", "") for delta in deltas) == "I could look."
    assert "".join(delta.get("content") or "" for delta in deltas) == '{"city": "Oslo"}'
    completion = await completion_of(engine, tools=[CHAT_TOOL], tool_choice="none")
    assert message_of(completion)["content"] == '{"city": "Oslo"}'


@pytest.mark.parametrize("per_step", [1, 3, 100])
async def test_a_chat_completion_fails_before_it_shows_a_call_that_is_not_allowed(per_step: int) -> None:
    engine = replaying(THINKS + CALL, per_step=per_step)
    other = {"type": "function", "function": {**CHAT_TOOL["function"], "name": "g"}}
    only_g = {"mode": "auto", "tools": [{"type": "function", "function": {"name": "g"}}]}
    choice = {"type": "allowed_tools", "allowed_tools": only_g}
    body: dict[str, Any] = {"tools": [CHAT_TOOL, other], "tool_choice": choice}
    chunks = await chunks_of(engine, **body)
    assert chunks[-1]["error"]["code"] == "invalid_output"
    assert not any("tool_calls" in choice["delta"] for chunk in chunks[:-1] for choice in chunk["choices"])
    with pytest.raises(InvalidOutput, match="does not allow"):
        await completion_of(engine, **body)
