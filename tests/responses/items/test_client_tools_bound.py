"""Tools that the client runs, on an engine that enforces grammars: every call is valid."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from gpt_oss_server.constraints.matcher import Grammars
from gpt_oss_server.harmony.encoding import Encoding
from tests.doubles.apis.asking import Asking
from tests.doubles.apis.client_tools import CRM, CUSTOM, DIGITS, EDIT, FREE, LARK, LOCAL, SHELL
from tests.doubles.harmony.sampling import RandomEngine

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
