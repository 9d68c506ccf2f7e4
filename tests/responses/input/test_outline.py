"""An outline of an item means the same for other items as the item, however long its texts are."""

from itertools import count
from typing import Any

import pytest

from gpt_oss_server.apis.responses.input import read_input
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.builder import Item
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.table import Kinds
from tests.doubles.apis.asking import responses_service
from tests.doubles.serving import scripted

KINDS = Kinds.of()
LONG = "word " * 2_000
TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
PATCH = {"type": "update_file", "path": "a", "diff": LONG}
ITEMS: list[Item] = [
    {"type": "message", "role": "developer", "content": LONG},
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": LONG}]},
    {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": LONG}]},
    {"type": "message", "role": "assistant", "phase": "commentary", "content": LONG},
    {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": f'["{LONG}"]'},
    {"type": "function_call_output", "call_id": "call_1", "output": LONG},
    {"type": "custom_tool_call", "call_id": "call_2", "name": "g", "input": LONG},
    {"type": "custom_tool_call_output", "call_id": "call_2", "output": LONG},
    {"type": "local_shell_call", "id": "ls_1", "call_id": "call_3", "action": {"command": [LONG]}},
    {"type": "local_shell_call_output", "id": "ls_1", "output": LONG},
    {"type": "shell_call", "call_id": "call_4", "action": {"commands": [LONG]}},
    {"type": "shell_call_output", "call_id": "call_4", "output": [{"stdout": LONG}]},
    {"type": "apply_patch_call", "call_id": "call_5", "operation": PATCH},
    {"type": "apply_patch_call_output", "call_id": "call_5", "status": "failed", "output": LONG},
    {"type": "tool_search_call", "call_id": "call_6", "arguments": {"query": LONG}},
    {"type": "tool_search_output", "call_id": "call_6", "tools": [TOOL]},
    {"type": "additional_tools", "role": "developer", "tools": [TOOL]},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "t", "arguments": "{}", "output": LONG},
    {"type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "t", "arguments": "{}"},
    {"type": "mcp_approval_request", "id": "mcpr_2", "server_label": "s", "name": "t", "arguments": "{}"},
    {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": False},
    {"type": "file_search_call", "id": "fs_1", "queries": [LONG], "results": None},
    {"type": "web_search_call", "id": "ws_1", "action": {"type": "search", "query": LONG}},
    {"type": "code_interpreter_call", "id": "ci_1", "code": LONG, "outputs": None},
    {"type": "image_generation_call", "id": "ig_1", "result": LONG},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"type": "agent_message", "author": "a", "recipient": "b", "content": LONG},
    {"type": "message", "role": "assistant", "content": LONG},
]


async def read(items: list[Item], encoding: Encoding) -> Conversation:
    service = responses_service(scripted("<|channel|>final<|message|>Hi<|return|>"), encoding=encoding)
    numbers = count()
    found = read_input(
        items,
        KINDS,
        Renderer(encoding),
        lambda prefix: f"{prefix}_{next(numbers)}",
        recipients={},
        approvals={},
        sealer=service.served.stores.sealer,
        is_whole=False,
    )
    await service.close()
    return found


def test_every_kind_is_here_or_needs_a_sealed_text() -> None:
    sealed = {"compaction", "compaction_summary", "context_compaction", "compaction_trigger"}
    alike = sealed | {tool.item_type for tool in KINDS.hosted.values()}  # one hosted call stands for all
    assert set(KINDS.items) - {item["type"] for item in ITEMS} <= alike


@pytest.mark.parametrize("place", range(len(ITEMS)))
async def test_an_item_among_outlines_is_read_as_among_whole_items(encoding: Encoding, place: int) -> None:
    mixed = [item if at == place else KINDS.outline(item) for at, item in enumerate(ITEMS)]
    whole, outlined = await read(ITEMS, encoding), await read(mixed, encoding)
    assert outlined.recipients == whole.recipients
    assert outlined.approvals == whole.approvals

    def own(read: Conversation) -> list[Any]:
        return [s for s, source in zip(read.segments, read.sources, strict=True) if source == place]

    assert own(outlined) == own(whole)


async def test_outlines_say_next_to_nothing(encoding: Encoding) -> None:
    read_outlines = await read([KINDS.outline(item) for item in ITEMS], encoding)
    assert sum(len(segment.tokens) for segment in read_outlines.segments) < 30 * len(ITEMS)
