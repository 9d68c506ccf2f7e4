"""Calls that run on this server: their items of the Responses API, and their blocks of a message.

Takes an item with the result that the model read, or a call's block and its result's. Returns the blocks, or
the item. What a client shows and what the model read differ for a search, so its results carry the latter,
sealed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.http.validation import text_field
from gpt_oss_server.json_values import dicts_of
from gpt_oss_server.stores.sealing import Sealer

Block = dict[str, Any]
_PURPOSE = "search results"
_SEARCH, _FETCH, _CODE = "web_search", "web_fetch", "code_execution"
CALLS = ("server_tool_use", "mcp_tool_use")
RESULTS = {
    "web_search_tool_result": _SEARCH,
    "web_fetch_tool_result": _FETCH,
    "code_execution_tool_result": _CODE,
    "mcp_tool_result": "mcp",
}
STREAMED = {"code_interpreter_call": _CODE, "mcp_call": "mcp"}
"""The items whose call streams while it is written."""


def call_block(item: Block, key: str) -> Block:
    """The block of a call whose input is still empty."""
    if item["type"] == "mcp_call":
        server = {"name": item["name"], "server_name": item["server_label"]}
        return {"type": "mcp_tool_use", "id": f"mcptoolu_{key}", "input": {}, **server}
    name, fields = (_CODE, {}) if item["type"] == "code_interpreter_call" else _browsed(item["action"])
    return {"type": "server_tool_use", "id": f"srvtoolu_{key}", "name": name, "input": fields}


def _browsed(action: Mapping[str, Any]) -> tuple[str, Block]:
    if action["type"] == "search":
        return _SEARCH, {"query": action.get("query") or ""}
    pattern = {"pattern": action["pattern"]} if action.get("pattern") else {}
    return _FETCH, {"url": action.get("url") or "", **pattern}


def result_block(item: Block, call: Block, text: str, sealer: Sealer) -> Block:
    """`text`: the result that the model read."""
    failed = item["status"] != "completed"
    name = call["name"] if call["type"] == "server_tool_use" else "mcp"
    block: Block = {"tool_use_id": call["id"], "type": f"{name}_tool_result"}
    match name:
        case "mcp":
            return {**block, "is_error": failed, "content": [{"type": "text", "text": text}]}
        case "code_execution":
            printed = {"stdout": "", "stderr": text} if failed else {"stdout": text, "stderr": ""}
            ended = {**printed, "return_code": int(failed), "content": []}
            return {**block, "content": {"type": "code_execution_result", **ended}}
        case _ if failed:
            error = {"type": f"{name}_tool_result_error", "error_code": "unavailable"}
            return {**block, "content": error}
        case "web_search":
            return {**block, "content": _hits(item.get("results") or (), text, sealer)}
    source = {"type": "text", "media_type": "text/plain", "data": text}
    document = {"type": "document", "source": source, "title": None, "citations": None}
    page = {"url": item["action"].get("url") or "", "content": document, "retrieved_at": None}
    return {**block, "content": {"type": "web_fetch_result", **page}}


def _hits(hits: Sequence[Block], text: str, sealer: Sealer) -> list[Block]:
    """The first of them carries what the model read."""
    sealed = sealer.seal(_PURPOSE, text.encode()) if hits else ""
    return [
        {
            "type": "web_search_result",
            "url": hit["url"],
            "title": hit["title"],
            "encrypted_content": sealed if index == 0 else "",
            "page_age": None,
        }
        for index, hit in enumerate(hits)
    ]


def item_of(call: Block, result: Block, where: str, sealer: Sealer) -> Block:
    """The item of an earlier call, with the result that the model read."""
    fields = call["input"] if isinstance(call.get("input"), dict) else {}
    content = result.get("content")
    inner: Block = content if isinstance(content, dict) else {}
    match RESULTS[result["type"]]:
        case "web_search":
            text = _read_results(content, sealer)
            action: Block = {"type": "search", "query": fields.get("query")}
        case "web_fetch":
            document = inner.get("content") if isinstance(inner.get("content"), dict) else {}
            source = document.get("source") if isinstance(document, dict) else {}
            text = str(source.get("data") or "") if isinstance(source, dict) else ""
            kind = "find_in_page" if "pattern" in fields else "open_page"
            action = {"type": kind, **fields}
        case "code_execution":
            printed = f"{inner.get('stdout') or ''}{inner.get('stderr') or ''}"
            outputs = [{"type": "logs", "logs": printed}]
            return {"type": "code_interpreter_call", "code": fields.get("code"), "outputs": outputs}
        case _:
            parts = "".join(str(part.get("text")) for part in dicts_of(content))
            return {
                "type": "mcp_call",
                "server_label": text_field(call, "server_name", where),
                "name": text_field(call, "name", where),
                "arguments": to_json(fields).decode(),
                "output": content if isinstance(content, str) else parts,
            }
    return {"type": "web_search_call", "action": action, "results": [{"title": text}] if text else []}


def _read_results(content: Any, sealer: Sealer) -> str:
    hits = dicts_of(content)
    for hit in hits:
        sealed = hit.get("encrypted_content")
        text = sealer.open(_PURPOSE, sealed) if isinstance(sealed, str) and sealed else None
        if text is not None:
            return text.decode()
    return "\n\n".join(f"{hit.get('title')}\n{hit.get('url')}" for hit in hits)
