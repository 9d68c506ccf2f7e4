"""A request's tool of type `mcp` without its secrets, as it may be stored and echoed.

Takes the tool as the client wrote it. It must not import MCP's packages: every such request passes here, on
the event loop, and their first import takes more than a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.mcp.endpoints import McpSettingsError, http_endpoint

SECRET_FIELDS = ("headers", "authorization")


def public_form(tool: Mapping[str, Any]) -> dict[str, Any]:
    """The tool without its secrets. They include the `user:password@` of a URL."""
    shown = {name: value for name, value in tool.items() if name not in SECRET_FIELDS}
    url = shown.get("server_url")
    if isinstance(url, str):
        try:
            shown["server_url"] = http_endpoint(url)[0].url
        except McpSettingsError:
            del shown["server_url"]  # an unreadable URL may hold anything
    return shown
