"""What the key of a request allows, and the owner of everything that the request makes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from gpt_oss_server.errors import ToolNotAllowed

MCP = "mcp"
"""The name under which a key may use MCP servers: the operator's and those that requests name."""
_WITH = {"shell": "python", "program": "python"}  # tools that run where another does, and are allowed with it


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
    webhook_secret: bytes = field(default=b"", repr=False)  # b"": the server's
    of_model: tuple[str, frozenset[str]] | None = None  # the request's model, if it has these tools alone
    digest: bytes = field(default=b"", repr=False)  # of the key; b"": none was needed

    def allows(self, tool: str) -> bool:
        return (self.tools is None or _WITH.get(tool, tool) in self.tools) and self._model_has(tool)

    def _model_has(self, tool: str) -> bool:
        return self.of_model is None or _WITH.get(tool, tool) in self.of_model[1]

    def within(self, model: str, tools: frozenset[str] | None) -> Access:
        """The access of a request of a model that has these tools; None: all."""
        return self if tools is None else replace(self, of_model=(model, tools))

    def check_tool(self, tool: str, *, param: str | None = "tools") -> None:
        what = "MCP servers" if tool == MCP else f"the tool {tool}"
        if self.of_model is not None and not self._model_has(tool):
            advice = "Leave it out of `tools`, or name another model."
            raise ToolNotAllowed(f"The model {self.of_model[0]!r} may not use {what}. {advice}", param=param)
        if not self.allows(tool):
            advice = "Leave it out of `tools`, or ask the server's operator to allow it for the key."
            raise ToolNotAllowed(f"This API key may not use {what}. {advice}", param=param)


def allowed_names(names: Sequence[str]) -> frozenset[str] | None:
    """Out of `all` (None), `none`, or names."""
    words = frozenset(names)
    return None if words == {"all"} else frozenset() if words == {"none"} else words


OPEN = Access()  # of a server without keys: its owner has no name
