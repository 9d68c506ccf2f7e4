"""Tools that the client runs, of every kind: how they are declared, called, answered and bound."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from openai.types.responses import ResponseItem
from pydantic import TypeAdapter

from gpt_oss_server.caller.caller import LOCAL as HERE
from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.content.tools import recipient_of
from gpt_oss_server.errors import ApiError
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import FINAL, Asking, call
from tests.doubles.apis.client_tools import (
    COMMAND,
    COMMANDS,
    CRM,
    CUSTOM,
    DIGITS,
    EDIT,
    FREE,
    ITEMS,
    LARK,
    LOCAL,
    PATCH,
    SHELL,
    STREAMS,
    UPDATE,
)
from tests.doubles.harmony.sampling import RandomEngine
from tests.doubles.lints import compare

EXITED = '[{"stdout":"a","stderr":"","outcome":{"type":"exit","exit_code":0}}]'
SNAPSHOTS = Path(__file__).parent / "snapshots"


@pytest.mark.parametrize("name", STREAMS)
async def test_stream(name: str) -> None:
    turn, tools = STREAMS[name]
    ask = Asking(turn)
    response = await ask(tools=tools)
    assert response["status"] == "completed"
    compare(SNAPSHOTS / f"{name}.jsonl", ask.items_events)


async def test_a_name_and_its_namespace_are_separated_however_the_model_wrote_them() -> None:
    for recipient in ("crm.find", "functions.crm.find", "find"):
        (item,) = (await Asking(call(recipient, "{}"))(tools=[CRM]))["output"]
        assert (item["type"], item["namespace"], item["name"]) == ("function_call", "crm", "find")


@pytest.mark.parametrize("name", ["python", "functions", "a.b c", "mcp__docs-2"])
async def test_a_namespace_of_any_name_is_returned_by_that_name(name: str) -> None:
    ask = Asking(call(recipient_of("find", name), "{}"), FINAL.format("Done."))
    response = await ask(tools=[{**CRM, "name": name}])
    (item,) = response["output"]
    assert (item["namespace"], item["name"]) == (name, "find")
    assert response["tools"][0]["name"] == name
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "ok"}
    prompt = await ask.prompt(input=["Hi", item, output], tools=[{**CRM, "name": name}])
    assert f"{recipient_of('find', name)} to=assistant" in prompt


async def test_the_prompt_declares_custom_tools_and_namespaces() -> None:
    tools = [CUSTOM, DIGITS, CRM, SHELL]
    prompt = await Asking(FINAL).prompt(tools=tools)
    for text in (
        "// Edits files.\n// Call it with the text itself, not as JSON.\n"
        "// The text must follow this Lark grammar:\n// start: begin_patch",
        "type apply_patch = (_: string) => any;",
        r"// The text must match this regular expression as a whole: \+?\d{3,15}(/\d+)?",
        "## crm\n\n// Customers.\nnamespace crm {",
        "type note = (_: string) => any;",
        "type shell = (_: {",
    ):
        assert text in prompt
    assert "# Tools" not in await Asking(FINAL).prompt(tools=tools, tool_choice="none")


OUTPUTS: list[tuple[str, dict[str, Any], Any, str]] = [
    ("apply_patch", CUSTOM, {"output": [{"type": "input_text", "text": "Done!"}]}, "Done!"),
    ("local_shell", LOCAL, {"output": "a.txt"}, "a.txt"),
    ("shell", SHELL, {"output": json.loads(EXITED)}, EXITED),
    ("apply_patch", EDIT, {"status": "failed", "output": "No."}, '{"status":"failed","output":"No."}'),
    ("apply_patch", EDIT, {"status": "completed"}, '{"status":"completed"}'),
]
CALLS = {"custom": PATCH, "local_shell": COMMAND, "shell": COMMANDS, "apply_patch": UPDATE}


@pytest.mark.parametrize(("name", "tool", "output", "text"), OUTPUTS)
@pytest.mark.parametrize("whole", [True, False], ids=["items sent again", "previous_response_id"])
async def test_an_output_answers_its_call(name: str, tool: Any, output: Any, text: str, whole: bool) -> None:
    ask = Asking(call(f"functions.{name}", CALLS[tool["type"]], kind=" code"))
    response = await ask(tools=[tool])
    (item,) = response["output"]
    result = {"type": f"{item['type']}_output", "call_id": item["call_id"], **output}
    more = {"input": ["Hi", item, result]} if whole else {"previous_response_id": response["id"]}
    prompt = await ask.prompt(**{"input": [result], "tools": [tool], **more})
    result_message = f"<|start|>functions.{name} to=assistant<|channel|>commentary<|message|>{text}<|end|>"
    assert prompt.endswith(f"{result_message}<|start|>assistant")
    if tool is CUSTOM:
        assert f"<|message|>{PATCH}<|call|>" in prompt


async def test_a_shells_past_call_is_rendered_as_written_and_its_output_may_name_it_by_the_items_id() -> None:
    ask = Asking(call("functions.local_shell", COMMAND))
    response = await ask(tools=[LOCAL])
    (item,) = response["output"]
    assert item["action"]["type"] == "exec"
    output = {"type": "local_shell_call_output", "id": item["id"], "output": "a.txt"}
    prompt = await ask.prompt(input=["Hi", item, output], tools=[LOCAL])
    written = '{"command":["ls","-l"],"env":{"A":"1"},"timeout_ms":500}'
    assert f"to=functions.local_shell <|constrain|>json<|message|>{written}<|call|>" in prompt
    stored = await ask.prompt(input=[output], tools=[LOCAL], previous_response_id=response["id"])
    for shown in (prompt, stored):
        assert "functions.local_shell to=assistant<|channel|>commentary<|message|>a.txt" in shown


MISFITS: list[tuple[dict[str, Any], str, str]] = [
    (CUSTOM, "apply_patch", "just text"),
    (DIGITS, "dial", "+12"),
    (LOCAL, "local_shell", '{"command": "ls"}'),
    (SHELL, "shell", "not json"),
    (EDIT, "apply_patch", '{"type": "update_file", "path": "a"}'),
]


@pytest.mark.parametrize(("tool", "name", "body"), MISFITS)
async def test_a_call_that_does_not_fit_is_kept_and_fails(tool: dict[str, Any], name: str, body: str) -> None:
    response = await Asking(call(f"functions.{name}", body, kind=""))(tools=[tool])
    assert response["status"] == "failed"
    assert "invalid_output" in response["error"]["message"]
    (item,) = response["output"]
    assert item["type"].endswith("_call")
    assert tool["type"] != "custom" or item["input"] == body


SPELT = {"type": "grammar", "syntax": "lark", "definition": 'start: "<|x|>" /@<a>+/ // <|end|>'}


@pytest.mark.parametrize(
    ("tool", "body"),
    [(DIGITS, "+4712345"), (DIGITS, "123/4"), ({**DIGITS, "format": SPELT}, "<|x|>@<a>")],
    ids=["digits", "slash", "special tokens spelt in a literal"],
)
async def test_input_that_follows_its_grammar_passes(tool: dict[str, Any], body: str) -> None:
    response = await Asking(call("functions.dial", body, kind=""))(tools=[tool])
    assert response["status"] == "completed"


FORM = {"type": "grammar", "syntax": "lark"}
SKILLS = {"type": "local", "skills": [{"name": "csv"}]}
REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"type": "custom"}, "tools[0].name", "must be"),
    ({"type": "custom", "custom": {"name": "a"}}, "tools[0].name", "Chat Completions form"),
    ({**FREE, "format": "text"}, "tools[0].format", "an object"),
    ({**FREE, "format": {"type": "json"}}, "tools[0].format.type", "'text' or 'grammar'"),
    ({**FREE, "format": {**FORM, "syntax": "ebnf"}}, "tools[0].format.syntax", "'lark' or 'regex'"),
    ({**FREE, "format": FORM}, "tools[0].format.definition", "non-empty"),
    ({"type": "namespace", "tools": []}, "tools[0].name", "non-empty"),
    ({"type": "namespace", "name": "a"}, "tools[0].tools", "array"),
    ({**CRM, "tools": [{"type": "shell"}]}, "tools[0].tools[0].type", "'function' and 'custom'"),
    ({**CRM, "tools": [FREE, FREE]}, "tools", "twice"),
    ({"type": "shell", "environment": {"type": "vm"}}, "tools[0].environment.type", "'container_auto'"),
    ({"type": "shell", "environment": {"type": "container_auto"}}, "tools", "--python auto"),
    (
        {"type": "shell", "environment": {"type": "container_reference"}},
        "tools[0].environment.container_id",
        "id",
    ),
    ({"type": "shell", "environment": SKILLS}, "tools[0].environment.skills[0]", "path"),
]


@pytest.mark.parametrize(("tool", "param", "words"), REFUSED)
async def test_an_invalid_tool_is_refused_with_its_field(tool: Any, param: str, words: str) -> None:
    with pytest.raises(ApiError, match=words) as refused:
        await Asking(FINAL)(tools=[tool])
    assert (refused.value.status, refused.value.param) == (400, param)


GRAMMARS = [
    ("lark", 'start: "a" <|end|>', "a special token"),
    ("lark", 'start: "a" <[200012]>', "a special token"),
    ("lark", "start: @turn", "another grammar"),
    ("lark", "start: missing", "unknown name"),
    ("lark", 'begin: "a"', "no start rule"),
    ("lark", "start: /(?=a)b/", "look-ahead"),
    ("regex", "a(?=b)", "look-ahead"),
    ("regex", "(a", "unclosed group"),
    ("regex", "(a|b|c)*" * 2_000, "the limit is 8000"),
    ("regex", "a" * 70_000, "characters"),
]


@pytest.mark.parametrize(("syntax", "definition", "words"), GRAMMARS)
async def test_a_grammar_that_cannot_be_enforced_is_refused(syntax: str, definition: str, words: str) -> None:
    form = {"type": "grammar", "syntax": syntax, "definition": definition}
    with pytest.raises(ApiError, match=words) as refused:
        await Asking(FINAL)(tools=[{**FREE, "format": form}])
    assert (refused.value.code, refused.value.param) == ("invalid_grammar", "tools[0].format.definition")


CHOICES: list[tuple[Any, bool]] = [
    ({"type": "custom", "name": "say"}, True),
    ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "namespace", "name": "crm"}]}, False),
    ({"type": "function", "name": "find", "namespace": "crm"}, False),
    ({"type": "shell"}, False),
    ("required", True),
    ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "custom", "name": "say"}]}, True),
    ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "shell"}]}, False),
]


@pytest.mark.parametrize(("choice", "fits"), CHOICES)
async def test_tool_choice_names_any_kind_of_tool(choice: Any, fits: bool) -> None:
    response = await Asking(call("functions.say", "x", kind=""))(tools=[FREE, CRM, SHELL], tool_choice=choice)
    assert response["status"] == ("completed" if fits else "failed")


async def test_tool_choice_of_an_undeclared_tool_is_refused() -> None:
    for kind, name in (("custom", "find"), ("apply_patch", None), ("function", "say")):
        with pytest.raises(ApiError, match="does not declare"):
            await Asking(FINAL)(tools=[FREE, CRM, SHELL], tool_choice={"type": kind, "name": name})


async def test_items_are_listed_with_all_fields_that_the_sdks_types_require() -> None:
    ask = Asking(FINAL.format("Hello!"))
    response = await ask(input=ITEMS, tools=[CRM, SHELL])
    known: TypeAdapter[Any] = TypeAdapter(ResponseItem)
    for item in (await ask.service.stored(HERE).retrieve(response["id"])).input_items:
        assert item["id"]
        known.validate_python(item)


async def test_the_skills_of_a_shell_are_declared() -> None:
    skills = [{"name": "csv", "description": "Reads CSV files.", "path": "/skills/csv"}]
    tool = {"type": "shell", "environment": {"type": "local", "skills": skills}}
    response = await Asking(FINAL)(tools=[tool], metadata={"__debug": True})
    assert "// - csv (/skills/csv): Reads CSV files.\n" in response["metadata"]["__debug_input"]
    assert response["tools"] == [tool]


IN_NAMESPACE = {"crm.find": lambda item: isinstance(json.loads(item["arguments"]), dict), "crm.note": bool}
NUMBER = re.compile(r"\+?\d{3,15}(/\d+)?")


async def test_every_call_that_ended_before_the_limit_is_valid(encoding: Encoding) -> None:
    grammars = Grammars(encoding)
    lark = grammars.compile(LARK)
    checks: list[tuple[Any, str, Callable[[Any], Any]]] = [
        (CUSTOM, "custom_tool_call", lambda item: grammars.matches(lark, item["input"])),
        (DIGITS, "custom_tool_call", lambda item: NUMBER.fullmatch(item["input"])),
        (FREE, "custom_tool_call", bool),
        *(
            (tool, f"{tool['type']}_call", lambda item: item["status"] == "completed")
            for tool in (LOCAL, SHELL, EDIT)
        ),
        (CRM, "", lambda item: IN_NAMESPACE[f"{item['namespace']}.{item['name']}"](item)),
    ]
    for tool, kind, is_valid in checks:
        ask, ended = Asking(engine=RandomEngine(encoding)), 0
        for _ in range(8):
            response = await ask(tools=[tool], tool_choice="required", max_output_tokens=2_000)
            if response["status"] == "completed":
                item, ended = response["output"][-1], ended + 1
                assert kind in item["type"]
                assert is_valid(item), item
        assert ended, f"no call of {tool} ended"


@pytest.mark.parametrize("channel", ["commentary", "analysis"])
async def test_a_call_that_tool_choice_none_forbids_is_a_text(channel: str) -> None:
    ask = Asking(call("functions.say", "Good day.", kind="", channel=channel), FINAL)
    response = await ask(tools=[FREE], tool_choice="none", metadata={"__debug": "on"})
    assert response["status"] == "completed"
    texts = [part["text"] for item in response["output"] for part in item["content"]]
    assert texts[0] == "Good day."
    assert {item["type"] for item in response["output"]} <= {"reasoning", "message"}
    assert '"no_tool"' in response["metadata"]["__debug_warnings"]
