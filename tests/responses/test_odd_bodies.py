"""Whatever stands wherever in a request's tools and items: a response or a sentence, never a defect."""

from __future__ import annotations

from typing import Any

import pytest

from gpt_oss_server.body import without_lone_surrogates
from tests.chat.test_odd_bodies import ODD, answer_or_sentence, places, with_odd
from tests.responses.asking import FINAL, Asking
from tests.responses.test_client_tools import CRM, DIGITS, EDIT, LOCAL

TOOLS: list[dict[str, Any]] = [
    {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True},
    DIGITS,
    CRM,
    LOCAL,
    {"type": "shell", "environment": {"type": "local"}},
    EDIT,
    {"type": "tool_search", "execution": "client", "description": "x", "parameters": {"type": "object"}},
]
OF_AGENTS: list[dict[str, Any]] = [  # which the SDK does not know
    {
        "type": "agent_message",
        "author": "a",
        "recipient": "b",
        "content": [{"type": "input_text", "text": "x"}],
    },
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
]
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
    {"type": "function_call", "call_id": "1", "name": "find", "namespace": "crm", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call", "call_id": "2", "name": "dial", "input": "123"},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "x"},
    {
        "type": "local_shell_call",
        "id": "lsh_1",
        "call_id": "3",
        "status": "completed",
        "action": {"type": "exec", "command": ["ls"], "env": {}},
    },
    {"type": "local_shell_call_output", "id": "3", "output": "x"},
    {"type": "shell_call", "call_id": "4", "action": {"commands": ["ls"]}},
    {
        "type": "shell_call_output",
        "call_id": "4",
        "output": [{"stdout": "", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}],
    },
    {
        "type": "apply_patch_call",
        "call_id": "5",
        "status": "completed",
        "operation": {"type": "delete_file", "path": "a"},
    },
    {"type": "apply_patch_call_output", "call_id": "5", "status": "completed"},
    {"type": "tool_search_call", "call_id": "6", "execution": "client", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": "6", "tools": [CRM]},
    {"type": "additional_tools", "role": "developer", "tools": [LOCAL]},
    {"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": "data:,x"}]},
]
CHOICES = ({"type": "custom", "name": "dial"}, {"type": "function", "name": "find", "namespace": "crm"})


@pytest.mark.parametrize("odd", ODD, ids=str)
async def test_a_request(odd: Any) -> None:
    for whole in (
        {"tools": TOOLS},
        {"input": [*ITEMS, *OF_AGENTS]},
        *({"tool_choice": choice} for choice in CHOICES),
    ):
        for place in places(whole):
            if not place:
                continue
            body = without_lone_surrogates({"tools": TOOLS, **with_odd(whole, place, odd)})
            assert isinstance(body, dict)
            refused = await answer_or_sentence(Asking(FINAL.format("Hello!"))(**body))
            assert refused is None or refused.status in (400, 404), (place, odd)
