"""Client tools of every kind, and the model's calls to them."""

import json
from typing import Any

from tests.doubles.apis.asking import call

PATCH = "*** Begin Patch\n*** Add File: a.txt\n+hi 東京\n*** End Patch"
LARK = r"""start: begin_patch hunk+ end_patch
begin_patch: "*** Begin Patch" LF
end_patch: "*** End Patch" LF?

hunk: add_hunk | delete_hunk | update_hunk
add_hunk: "*** Add File: " filename LF add_line+
delete_hunk: "*** Delete File: " filename LF
update_hunk: "*** Update File: " filename LF change_move? change?

filename: /(.+)/
add_line: "+" /(.*)/ LF -> line

change_move: "*** Move to: " filename LF
change: (change_context | change_line)+ eof_line?
change_context: ("@@" | "@@ " /(.+)/) LF
change_line: ("+" | "-" | " ") /(.*)/ LF
eof_line: "*** End of File" LF

%import common.LF
"""
CUSTOM: dict[str, Any] = {
    "type": "custom",
    "name": "apply_patch",
    "description": "Edits files.",
    "format": {"type": "grammar", "syntax": "lark", "definition": LARK},
}
FREE: dict[str, Any] = {"type": "custom", "name": "say"}
DIGITS: dict[str, Any] = {
    "type": "custom",
    "name": "dial",
    "format": {"type": "grammar", "syntax": "regex", "definition": r"\+?\d{3,15}(/\d+)?"},
}
CRM: dict[str, Any] = {
    "type": "namespace",
    "name": "crm",
    "description": "Customers.",
    "tools": [
        {"type": "function", "name": "find", "parameters": {"type": "object"}, "strict": False},
        {"type": "custom", "name": "note", "description": "Writes a note."},
    ],
}
LOCAL, SHELL, EDIT = {"type": "local_shell"}, {"type": "shell"}, {"type": "apply_patch"}
COMMAND = '{"command": ["ls", "-l"], "timeout_ms": 500, "env": {"A": "1"}}'
COMMANDS = '{"commands": ["ls", "pwd"], "max_output_length": 100}'
UPDATE = json.dumps({"type": "update_file", "path": "a.py", "diff": "@@\n-a\n+b\n"})

STREAMS: dict[str, tuple[str, list[dict[str, Any]]]] = {
    "custom_tool_call": (call("functions.apply_patch", PATCH, kind=" code"), [CUSTOM]),
    "custom_free_text": (call("functions.say", "not {json", kind=""), [FREE]),
    "namespace_function": (call("crm.find", '{"name":"A"}'), [CRM]),
    "namespace_custom": (call("crm.note", "A was here.", kind=""), [CRM]),
    "local_shell": (call("functions.local_shell", COMMAND), [LOCAL]),
    "shell": (call("functions.shell", COMMANDS), [SHELL]),
    "apply_patch": (call("functions.apply_patch", UPDATE), [EDIT]),
    "tool_search_client": (
        call("functions.tool_search", '{"query":"crm"}'),
        [{"type": "tool_search", "execution": "client", "parameters": {"type": "object"}}],
    ),
    "apply_patch_delete": (call("functions.apply_patch", '{"type":"delete_file","path":"a"}'), [EDIT]),
}
TOOL: dict[str, Any] = {"type": "function", "name": "f", "parameters": {"type": "object"}}
OSLO, PARIS = call("functions.f", '{"c":"Oslo"}'), call("functions.f", '{"c":"Paris"}')


def arguments(response: dict[str, Any]) -> list[str]:
    return [item["arguments"] for item in response["output"] if item["type"] == "function_call"]


_EXEC = {"type": "exec", "command": ["ls"], "env": {}}
_EXIT = {"type": "exit", "exit_code": 0}
_DELETE = {"type": "delete_file", "path": "a"}
ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "x"}]},
    {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "r"}]},
    {"type": "function_call", "call_id": "1", "name": "find", "namespace": "crm", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "x"}]},
    {"type": "custom_tool_call", "call_id": "2", "name": "dial", "input": "123"},
    {"type": "custom_tool_call_output", "call_id": "2", "output": "x"},
    {"type": "local_shell_call", "id": "lsh_1", "call_id": "3", "status": "completed", "action": _EXEC},
    {"type": "local_shell_call_output", "id": "3", "output": "x"},
    {"type": "shell_call", "call_id": "4", "action": {"commands": ["ls"]}},
    {"type": "shell_call_output", "call_id": "4", "output": [{"stdout": "", "stderr": "", "outcome": _EXIT}]},
    {"type": "apply_patch_call", "call_id": "5", "status": "completed", "operation": _DELETE},
    {"type": "apply_patch_call_output", "call_id": "5", "status": "completed"},
    {"type": "tool_search_call", "call_id": "6", "execution": "client", "arguments": {"query": "x"}},
    {"type": "tool_search_output", "call_id": "6", "tools": [CRM]},
    {"type": "additional_tools", "role": "developer", "tools": [LOCAL]},
    {"role": "user", "content": [{"type": "input_file", "filename": "a", "file_data": "data:,x"}]},
]
