"""What requests become, what is refused, and errors in the API's own form, over HTTP."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from anthropic import Anthropic

from gpt_oss_server.apis.messages.errors import error_body
from gpt_oss_server.caller.caller import LOCAL, SESSION
from gpt_oss_server.errors import ApiError, ContextLengthExceeded
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from inference.backends.scripted import ScriptedEngine
from inference.engine import EngineBusy
from tests.doubles.apis.keyed import key_file
from tests.doubles.apis.messages_asking import HI, TOOL, Block, message_of, messages_service
from tests.doubles.engines.replay import TurnsEngine
from tests.doubles.serving import scripted, serving

KEY = "k-" + "0123456789abcdef" * 2
ANSWER = "<|channel|>final<|message|>{}<|return|>"
BILLING = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.197.a1b"}
CACHED = {"cache_control": {"type": "ephemeral"}}


def text(words: str, **more: Any) -> Block:
    return {"type": "text", "text": words, **more}


async def prompt_of(encoding: Encoding, **body: Any) -> str:
    engine = TurnsEngine(encoding, ANSWER)
    await message_of(messages_service(engine), **body)
    return encoding.decode(engine.prompts[0])


def said(*messages: tuple[str, Any]) -> list[Block]:
    return [{"role": role, "content": content} for role, content in messages]


def _use(call_id: str, given: Block) -> Block:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": given}


def _result(call_id: str, content: Any, **more: Any) -> Block:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}


async def test_system_texts_and_a_system_message_in_the_middle(encoding: Encoding) -> None:
    system = [BILLING, text("Be brief.", **CACHED), text("Be kind.")]
    turns = (("user", "One"), ("system", "Now in French."), ("assistant", [text("Un")]), ("user", "Two"))
    prompt = await prompt_of(encoding, system=system, messages=said(*turns))
    assert "# Instructions\n\nBe brief.\n\nBe kind." in prompt
    assert "cc_version" not in prompt
    order = ["<|start|>user<|message|>One", "Now in French.", "<|channel|>final<|message|>Un", "Two<|end|>"]
    assert sorted(order, key=prompt.index) == order


async def test_blocks_of_users_and_results(encoding: Encoding) -> None:
    document = {"type": "document", "title": "notes.txt", "context": "My notes.", **CACHED}
    plain = {**document, "source": {"type": "text", "media_type": "text/plain", "data": "A note: é"}}
    encoded = {"type": "base64", "media_type": "text/plain", "data": "QiBub3Rl"}
    found = {"type": "search_result", "source": "https://x.org", "title": "X", "content": [text("Text of X")]}
    image = {"type": "image", "source": {"type": "url", "url": "https://x.org/a.png"}}
    parts = [text("Read this."), plain, {"type": "document", "source": encoded}, found, image]
    calls = [_use(f"toolu_{number}", {"city": "Oslo"}) for number in (1, 2)]
    failed = _result("toolu_1", "no such city", is_error=True)
    results = [_result("toolu_2", [text("sunny"), found]), failed, text("And now?")]
    messages = said(("user", parts), ("assistant", [text("I look."), *calls]), ("user", results))
    prompt = await prompt_of(encoding, messages=messages, tools=[TOOL])
    for words in ("Read this.", "My notes.", "notes.txt", "A note: é", "B note", "Text of X", "cannot see"):
        assert words in prompt
    assert "<|channel|>commentary<|message|>I look.<|end|>" in prompt
    assert prompt.count('to=functions.f <|constrain|>json<|message|>{"city":"Oslo"}<|call|>') == 2
    assert prompt.index("Error:\nno such city") < prompt.index("sunny\nX\nhttps://x.org\nText of X")
    assert prompt.endswith("<|start|>user<|message|>And now?<|end|><|start|>assistant")


@pytest.mark.parametrize(
    ("choice", "sampled", "parallel"),
    [
        (None, None, True),
        ({"type": "auto", "disable_parallel_tool_use": True}, None, False),
        ({"type": "any"}, "required", True),
        ({"type": "tool", "name": "f"}, "f", True),
        ({"type": "none"}, "none", True),
    ],
    ids=str,
)
async def test_tool_choices(encoding: Encoding, choice: Any, sampled: Any, parallel: bool) -> None:
    call = "<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}<|call|>"
    must_call = sampled in ("required", "f")
    engine = TurnsEngine(encoding, call if must_call else ANSWER)
    service = messages_service(engine)
    run = await service.start(LOCAL, {**HI, "tools": [TOOL], "tool_choice": choice}, None)
    message = await run.wait()
    assert message["stop_reason"] == ("tool_use" if must_call else "end_turn")
    assert run.run.request.allows_parallel_calls is parallel
    assert ("namespace functions" in encoding.decode(engine.prompts[0])) is (sampled != "none")


async def test_client_tools_with_a_type_have_its_schema(encoding: Encoding) -> None:
    tools = [
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"type": "memory_20250818", "name": "memory"},
        {**TOOL, "input_examples": [{"city": "Oslo"}], "defer_loading": True},
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
    ]
    prompt = await prompt_of(encoding, tools=tools)
    for words in ("type bash = ", "str_replace_based_edit_tool", "old_str", "/memories", '{"city": "Oslo"}'):
        assert words in prompt
    assert "tool_search" not in prompt


def _tool(name: str, **more: Any) -> Block:
    return {**TOOL, "name": name, **more}


async def test_tools_that_are_found_or_added_later_leave_the_prompt_before_them(encoding: Encoding) -> None:
    """A tool is declared where its search's result, or a system message, has it."""
    later = [_tool(name, defer_loading=True) for name in ("found", "added", "unknown")]
    references = [{"type": "tool_reference", "tool_name": "found"}]
    added = [
        {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "added"}},
        {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": _tool("defined")}},
        {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "f"}},
    ]
    called = (("assistant", [_use("toolu_1", {})]), ("user", [_result("toolu_1", references)]))
    messages = said(("user", "hi"), *called, ("system", added))
    first = await prompt_of(encoding, messages=messages[:1], tools=[TOOL, *later[:1]])
    prompt = await prompt_of(encoding, messages=messages, tools=[*later, TOOL])
    assert prompt.startswith(first.removesuffix("<|start|>assistant"))
    places = [prompt.index(f"type {name} = ") for name in ("f", "found", "added", "defined")]
    assert sorted(places) == places
    assert "type unknown" not in prompt
    assert prompt.index("The tool f is not available from here on.") < places[2]
    call_it = "<|channel|>commentary to=functions.found <|constrain|>json<|message|>{}<|call|>"
    service, choice = messages_service(TurnsEngine(encoding, call_it)), {"type": "tool", "name": "found"}
    message = await message_of(service, messages=messages, tools=[TOOL, *later], tool_choice=choice)
    assert message["content"][-1]["name"] == "found"


async def test_what_a_system_message_in_the_middle_changes(encoding: Encoding) -> None:
    """The effort from there on; a note of one turn goes with the user's next message."""
    note = {"role": "system", "content": "Only now.", "clear_at": "next_user_message"}
    effort = {"role": "system", "output_config": {"effort": "low"}}
    messages = [*said(("user", "One")), note, effort]
    prompt = await prompt_of(encoding, messages=messages)
    assert "Only now." in prompt
    assert "Reasoning: low" in prompt
    later = await prompt_of(encoding, messages=[*messages, *said(("assistant", "1"), ("user", "Two"))])
    assert "Only now." not in later


async def test_the_effort(encoding: Encoding) -> None:
    for config, effort in (({"effort": "low"}, "low"), ({"effort": "max"}, "high"), (None, "medium")):
        assert f"Reasoning: {effort}" in await prompt_of(encoding, output_config=config)


async def test_a_form_and_fields_of_sampling(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, ANSWER)
    schema = {"type": "object", "properties": {}, "additionalProperties": False}
    form = {"format": {"type": "json_schema", "schema": schema}}
    fields: Block = {"temperature": 0.5, "top_k": 7, "top_p": 0.25, "max_tokens": 11}
    await message_of(messages_service(engine), output_config=form, **fields)
    sampling = engine.samplings[0]
    assert (sampling.temperature, sampling.top_k, sampling.top_p) == (0.5, 7, 0.25)
    assert sampling.max_tokens == 11
    assert "# Response Formats" in encoding.decode(engine.prompts[0])


IMAGE_TOOL = {"type": "computer_20250124", "name": "computer"}
CITED = {"type": "document", "source": {"type": "text", "data": "x"}, "citations": {"enabled": True}}
REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"max_tokens": None}, "max_tokens"),
    ({"max_tokens": 0}, "max_tokens"),
    ({"messages": []}, "`messages` is empty"),
    ({"messages": said(("tool", "x"))}, r"messages\[0\].role"),
    ({"messages": said(("user", 3))}, r"messages\[0\].content"),
    ({"messages": said(("user", [{"type": "audio"}]))}, r"messages\[0\].content\[0\].type"),
    ({"messages": said(("user", [CITED]))}, r"messages\[0\].content\[0\].citations"),
    ({"messages": said(("user", [text(3)]))}, r"messages\[0\].content\[0\]"),  # type: ignore[arg-type]
    ({"messages": said(("user", "hi"), ("assistant", " "))}, r"messages\[1\].content"),
    (
        {"messages": said(("user", [_result("x", "1")]))},
        r"messages\[0\].content\[0\].tool_use_id`: no tool_use with the id 'x' comes before",
    ),
    (
        {"messages": said(("user", "hi"), ("assistant", [_use("t", {})]), ("user", "Well?"))},
        r"messages\[1\].content\[0\]`: the call 't' has no result",
    ),
    ({"tool_choice": {"type": "any"}}, "A call is required, but no tool can be called"),
    ({"tools": [IMAGE_TOOL]}, r"tools\[0\].type"),
    ({"tools": [{"name": "f"}]}, r"tools\[0\].input_schema"),
    ({"tools": [TOOL, TOOL]}, "declares 'f' twice"),
    ({"tools": [{**TOOL, "allowed_callers": ["code_execution_20260120"]}]}, r"tools\[0\].allowed_callers"),
    ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
    ({"tools": [TOOL], "tool_choice": {"type": "all"}}, "tool_choice.type"),
    ({"thinking": {"type": "sometimes"}}, "thinking.type"),
    ({"output_config": {"format": {"type": "xml"}}}, "output_config.format.type"),
    ({"output_config": {"format": {"type": "json_schema", "schema": 3}}}, "output_config.format"),
    ({"stop_sequences": [" "]}, "stop_sequences"),
    ({"stop": "x"}, "stop_sequences"),
    ({"thread": {"id": "x"}}, "Send all messages"),
    (
        {"messages": said(("user", "hi"), ("system", [{"type": "tool_addition", "tool": {"type": "x"}}]))},
        r"messages\[1\].content\[0\].tool",
    ),
    ({"mcp_servers": [{"name": "x"}]}, r"mcp_servers\[0\].url"),
]


@pytest.mark.parametrize(("body", "words"), REFUSED, ids=lambda value: str(value)[:40])
async def test_a_fault_is_named_at_its_place(encoding: Encoding, body: Any, words: str) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        await prompt_of(encoding, **body)
    assert refused.value.status == 400
    assert "input" not in refused.value.message.replace("input_schema", "")


async def test_a_prompt_that_is_too_long_is_one_that_clients_shorten(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, ANSWER, context=256)
    with pytest.raises(ContextLengthExceeded) as refused:
        await message_of(messages_service(engine), messages=said(("user", "word " * 300)))
    error = error_body(refused.value)["error"]
    assert error["type"] == "invalid_request_error"
    assert error["message"].startswith("prompt is too long: 3")
    assert " tokens > 256 maximum. " in error["message"]


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    keys = key_file(tmp_path_factory.mktemp("keys"), f"{KEY} name=mine")
    with serving(scripted(ANSWER, loop=True), Settings(api_key_file=keys)) as url:
        yield url.removesuffix("/v1")


@pytest.mark.parametrize(
    ("method", "path", "key", "status", "kind"),
    [
        ("POST", "/v1/messages", None, 401, "authentication_error"),
        ("POST", "/v1/messages", "wrong", 401, "authentication_error"),
        ("POST", "/v1/messages", KEY, 400, "invalid_request_error"),
        ("POST", "/v1/messages/batches", KEY, 400, "invalid_request_error"),
        ("POST", "/v1/messages/others", KEY, 404, "not_found_error"),
        ("GET", "/v1/messages", KEY, 405, "invalid_request_error"),
    ],
)
def test_every_layer_refuses_in_this_form(
    keyed: str, method: str, path: str, key: str | None, status: int, kind: str
) -> None:
    headers = {} if key is None else {"x-api-key": key}
    answer = httpx.request(method, f"{keyed}{path}", headers=headers, content=b"{")
    body = answer.json()
    assert (answer.status_code, body["type"], body["error"]["type"]) == (status, "error", kind)
    assert body["request_id"] == answer.headers["request-id"]
    assert int(answer.headers["content-length"]) == len(answer.content)


@pytest.fixture
def claude(keyed: str) -> Iterator[Anthropic]:
    with Anthropic(base_url=keyed, api_key=KEY, max_retries=0) as made:
        yield made


def test_the_sdk_with_a_key(claude: Anthropic) -> None:
    hi: Any = said(("user", "hi"))
    for asking in (claude.messages, claude.beta.messages):
        message = asking.create(model="scripted", max_tokens=9, messages=hi)
        assert (message.content[0].type, message.stop_reason) == ("text", "end_turn")
        with asking.stream(model="scripted", max_tokens=9, messages=hi) as stream:
            assert "".join(stream.text_stream) == "{}"
    counted = claude.messages.count_tokens(model="scripted", messages=hi)
    assert counted.input_tokens == message.usage.input_tokens
    assert claude.models.list().data[0].display_name == "scripted"
    assert claude.models.retrieve("scripted").max_input_tokens == 131_072


def test_the_tool_runner_of_the_sdk_goes_on_without_a_thread(claude: Anthropic) -> None:
    hi: Any = said(("user", "hi"))
    runner = claude.beta.messages.tool_runner(model="scripted", max_tokens=9, messages=hi, tools=[])
    assert runner.until_done().stop_reason == "end_turn"


def test_models_are_in_the_form_of_the_caller(keyed: str) -> None:
    headers = {"x-api-key": KEY}
    assert httpx.get(f"{keyed}/v1/models", headers=headers).json()["object"] == "list"
    asked = httpx.get(f"{keyed}/v1/models", headers={**headers, "anthropic-version": "2023-06-01"}).json()
    assert (asked["has_more"], asked["first_id"]) == (False, "scripted")


def test_unknown_fields_are_named_and_known_ones_are_not(keyed: str) -> None:
    harmless = {"metadata": {"user_id": "x"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}}
    sent = {**HI, **harmless, "tmperature": 1, "thinking": {"type": "adaptive", "depth": 3}}
    answer = httpx.post(f"{keyed}/v1/messages?beta=true", json=sent, headers={"x-api-key": KEY})
    named = answer.headers["x-unknown-fields"]
    assert named.startswith("tmperature (did you mean temperature?), thinking.depth")
    assert "metadata" not in named


async def test_the_session_of_claude_code_keeps_its_requests_on_one_machine(encoding: Encoding) -> None:
    engine = TurnsEngine(encoding, ANSWER)
    run = await messages_service(engine).start(LOCAL, HI, "session-1")
    await run.wait()
    assert engine.samplings[0].labels[SESSION] == "session-1"


class RoomForOne:
    """An engine with room for one generation."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine, self.info = engine, engine.info
        self.generate, self.close = engine.generate, engine.close

    def check_room(self) -> None:
        if self._engine.active:
            raise EngineBusy(0, retry_after=2)

    def measures(self) -> dict[str, float]:
        return {}


def test_a_full_server_answers_529_and_a_silent_stream_pings() -> None:
    slow = scripted(ANSWER.replace("{}", "word " * 20), loop=True, tokens_per_second=4)
    with serving(RoomForOne(slow), Settings(keep_alive=0.1)) as url:
        sent = {**HI, "stream": True}
        with httpx.stream("POST", f"{url}/messages", json=sent, timeout=60) as stream:
            lines = stream.iter_lines()
            assert next(lines) == "event: message_start"
            refused = httpx.post(f"{url}/messages", json=HI)
            assert (refused.status_code, refused.json()["error"]["type"]) == (529, "overloaded_error")
            assert int(refused.headers["retry-after"]) > 0
            assert "event: ping" in lines
