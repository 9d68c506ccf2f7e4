"""Reads a request's tool of type `mcp`: its own server at a `server_url`, else the operator's of that label.

Wrong settings raise an `McpSettingsError` whose `param` is the field within the tool. The caller may store
and echo only the tool's public form (see endpoints.py).
"""

from collections.abc import Mapping
from typing import Any

from tools.mcp.client import McpTool, Narrowed
from tools.mcp.endpoints import SECRET_FIELDS, Credentials, McpSettingsError, http_endpoint
from tools.mcp.listing import McpListing
from tools.mcp.permissions import parse_permissions
from tools.mcp.transports import Reach

_LABEL_CHARS = 128


def request_tool(
    tool: Mapping[str, Any],
    operators: Mapping[str, McpTool],
    *,
    reach: Reach | None = None,
    timeout: float = 120.0,
    listing: McpListing | None = None,
) -> McpTool | Narrowed:
    """With a `listing`, the request's own server is not listed again."""
    label = tool.get("server_label")
    if not isinstance(label, str) or not label.strip() or len(label) > _LABEL_CHARS:
        message = f"An MCP tool needs a server_label of 1 to {_LABEL_CHARS} characters."
        raise McpSettingsError(message, param="server_label")
    for hosted in ("connector_id", "tunnel_id"):
        if tool.get(hosted) is not None:
            message = f"A {hosted} names a hosted service; name the MCP server itself by its server_url."
            raise McpSettingsError(message, param=hosted)
    permissions = parse_permissions(tool.get("allowed_tools"), tool.get("require_approval"))
    url = tool.get("server_url")
    if url is None:
        return Narrowed(_operators_server(label, operators, tool), permissions)
    if not isinstance(url, str):
        raise McpSettingsError("server_url must be a string.", param="server_url")
    endpoint, from_url = http_endpoint(url)
    headers = tool.get("headers") or {}
    if not isinstance(headers, Mapping):
        raise McpSettingsError("headers must be an object of names and strings.", param="headers")
    return McpTool(
        label,
        endpoint,
        Credentials(headers, _text(tool.get("authorization"), "authorization") or from_url),
        permissions=permissions,
        timeout=timeout,
        description=_text(tool.get("server_description"), "server_description"),
        reach=reach,
        listing=listing,
    )


def _operators_server(label: str, operators: Mapping[str, McpTool], tool: Mapping[str, Any]) -> McpTool:
    server = operators.get(label)
    if server is None:
        known = ", ".join(sorted(operators)) or "none"
        wrong = f"The MCP tool {label!r} has no server_url, and no such server is configured here ({known})."
        raise McpSettingsError(wrong, param="server_url")
    if secrets := [name for name in SECRET_FIELDS if tool.get(name)]:
        words = " and ".join(secrets)
        message = f"The MCP server {label!r} is the operator's: {words} cannot be given to it."
        raise McpSettingsError(message, param=secrets[0])
    return server


def _text(value: object, param: str) -> str | None:
    if value is None or isinstance(value, str):
        return value or None
    raise McpSettingsError(f"{param} must be a string.", param=param)
