"""Tools that the client runs, on an engine that enforces grammars: every call is valid."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.client_tools import CRM, CUSTOM, DIGITS, EDIT, FREE, LARK, LOCAL, SHELL
from tests.doubles.harmony.sampling import RandomEngine


async def calls_of(encoding: Encoding, tool: dict[str, Any], turns: int = 8) -> list[dict[str, Any]]:
    """The calls that ended before the limit."""
    ask = Asking(engine=RandomEngine(encoding))
    found = []
    for _ in range(turns):
        response = await ask(tools=[tool], tool_choice="required", max_output_tokens=2_000)
        if response["status"] == "completed":
            found.append(response["output"][-1])
    assert found, "no call ended"
    return found


async def test_a_custom_call_follows_its_lark_grammar(encoding: Encoding) -> None:
    grammars = Grammars(encoding)
    lark = grammars.compile(LARK)
    for item in await calls_of(encoding, CUSTOM):
        assert item["type"] == "custom_tool_call"
        assert grammars.matches(lark, item["input"]), item["input"]


async def test_a_custom_call_matches_its_regular_expression(encoding: Encoding) -> None:
    for item in await calls_of(encoding, DIGITS):
        assert re.fullmatch(r"\+?\d{3,15}(/\d+)?", item["input"]), item["input"]


async def test_free_text_is_a_custom_call(encoding: Encoding) -> None:
    assert {item["type"] for item in await calls_of(encoding, FREE)} == {"custom_tool_call"}


async def test_calls_name_the_namespace_and_its_tools(encoding: Encoding) -> None:
    for item in await calls_of(encoding, CRM):
        assert (item["namespace"], item["name"]) in (("crm", "find"), ("crm", "note"))
        if item["name"] == "find":
            assert isinstance(json.loads(item["arguments"]), dict)


@pytest.mark.parametrize("tool", [LOCAL, SHELL, EDIT], ids=["local_shell", "shell", "apply_patch"])
async def test_a_call_of_a_fixed_shape_has_that_shape(encoding: Encoding, tool: dict[str, Any]) -> None:
    for item in await calls_of(encoding, tool):
        assert item["type"] == f"{tool['type']}_call"
        assert item["status"] == "completed"
