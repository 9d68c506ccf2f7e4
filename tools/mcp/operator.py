"""The operator's MCP servers, which are trusted: `--mcp name=URL` and `--mcp name="command arguments"`."""

import re
import shlex
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field

from tools.mcp.endpoints import Credentials, Endpoint, McpSettingsError, StdioEndpoint, http_endpoint
from tools.mcp.names import RESERVED_NAMESPACES

_LABEL = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")
_HOW = "Write --mcp name=https://host/mcp, or --mcp name='command arguments'."


@dataclass(frozen=True, slots=True)
class OperatorServer:
    label: str
    endpoint: Endpoint
    credentials: Credentials = field(default_factory=Credentials)


def parse_mcp_flag(text: str) -> OperatorServer:
    """Parses one flag. Raises McpSettingsError, whose message repeats nothing but the name."""
    label, equals, target = (part.strip() for part in text.partition("="))
    if not equals or not _LABEL.fullmatch(label):
        raise McpSettingsError(
            f"An MCP server needs a name of letters, digits, '_' and '-' before the '='. {_HOW}",
            param="--mcp",
        )
    if label.lower() in RESERVED_NAMESPACES:
        message = f"The name {label!r} means something else to the model. Choose another."
        raise McpSettingsError(message, param="--mcp")
    if not target:
        raise McpSettingsError(f"The MCP server {label!r} has neither URL nor command. {_HOW}", param="--mcp")
    if "://" in target.split()[0]:
        try:
            endpoint, authorization = http_endpoint(target, trusted=True, param="--mcp")
        except McpSettingsError as error:
            raise McpSettingsError(f"The MCP server {label!r}: {error}", param="--mcp") from error
        return OperatorServer(label, endpoint, Credentials(authorization=authorization))
    return OperatorServer(label, _stdio(label, target))


def parse_mcp_flags(texts: Iterable[str]) -> tuple[OperatorServer, ...]:
    """Parses several flags; each name may occur once."""
    servers: dict[str, OperatorServer] = {}
    for text in texts:
        server = parse_mcp_flag(text)
        if server.label in servers:
            raise McpSettingsError(f"Two MCP servers are named {server.label!r}.", param="--mcp")
        servers[server.label] = server
    return tuple(servers.values())


def _stdio(label: str, command: str) -> StdioEndpoint:
    try:
        words = shlex.split(command)
    except ValueError as error:
        message = f"The command of the MCP server {label!r} cannot be split into words: {error}."
        raise McpSettingsError(message, param="--mcp") from error
    if not words or shutil.which(words[0]) is None:
        message = f"The command of the MCP server {label!r} was not found. {_HOW}"
        raise McpSettingsError(message, param="--mcp")
    return StdioEndpoint(words[0], tuple(words[1:]))
