"""What the key of a request allows, and the owner of everything that the request makes."""

from dataclasses import dataclass, field

from gpt_oss_server.errors import ToolNotAllowed

MCP = "mcp"
"""The name under which a key may use MCP servers: the operator's and those that requests name."""


@dataclass(frozen=True, slots=True)
class KeyLimits:
    """The limits of one owner; None: no limit."""

    rpm: int | None = None  # requests per minute
    tpm: int | None = None  # tokens per minute
    concurrent: int | None = None  # requests at work
    background: int | None = None  # background responses at work
    kernels: int | None = None  # open sessions of python
    memory: int | None = None  # bytes, of all kernels of python with their files
    stored: int | None = None  # bytes


@dataclass(frozen=True, slots=True)
class Access:
    owner: str = ""  # stays the same when a named key is replaced by another one of the same name
    name: str | None = None
    tools: frozenset[str] | None = None  # namespaces of hosted tools, and `MCP`; None: all
    limits: KeyLimits = field(default_factory=KeyLimits)
    models: frozenset[str] | None = None  # names; None: all
    webhook: str | None = None  # the address that is told of the owner's events
    digest: bytes = field(default=b"", repr=False)  # of the key; b"": none was needed

    def allows(self, tool: str) -> bool:
        return self.tools is None or tool in self.tools

    def check_tool(self, tool: str, *, param: str | None = "tools") -> None:
        if not self.allows(tool):
            what = "MCP servers" if tool == MCP else f"the tool {tool}"
            advice = "Leave it out of `tools`, or ask the server's operator to allow it for the key."
            raise ToolNotAllowed(f"This API key may not use {what}. {advice}", param=param)


OPEN = Access()  # of a server without keys: its owner has no name
