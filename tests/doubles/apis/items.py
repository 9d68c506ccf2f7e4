"""One input item of every kind that the SDK knows."""

from __future__ import annotations

from typing import Any

from tests.doubles.apis.client_tools import CRM, LOCAL

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
