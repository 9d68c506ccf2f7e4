"""Which of a server's tools a request may call, and which calls a person must approve: by default, all."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.mcp.endpoints import McpSettingsError


@dataclass(frozen=True, slots=True)
class ToolFilter:
    """Tools by name, or by the server's declaration that they only read. None: not a criterion."""

    names: frozenset[str] | None = None
    read_only: bool | None = None

    def takes(self, name: str, annotations: Mapping[str, Any] | None = None) -> bool:
        if self.names is None and self.read_only is None:
            return False
        if self.names is not None and name not in self.names:
            return False
        return self.read_only is None or self.read_only == bool((annotations or {}).get("readOnlyHint"))


@dataclass(frozen=True, slots=True)
class Approval:
    always: ToolFilter = ToolFilter()
    never: ToolFilter = ToolFilter()
    otherwise: bool = True

    def needed(self, name: str, annotations: Mapping[str, Any] | None = None) -> bool:
        """Whether a call needs approval. A tool on both lists does."""
        if self.always.takes(name, annotations):
            return True
        return self.otherwise and not self.never.takes(name, annotations)


@dataclass(frozen=True, slots=True)
class Permissions:
    allowed: ToolFilter | None = None
    approval: Approval = Approval()

    def allows(self, name: str, annotations: Mapping[str, Any] | None = None) -> bool:
        return self.allowed is None or self.allowed.takes(name, annotations)


def parse_permissions(allowed_tools: object = None, require_approval: object = None) -> Permissions:
    """Reads both fields; raises McpSettingsError."""
    return Permissions(_allowed(allowed_tools), _approval(require_approval))


def _allowed(value: object) -> ToolFilter | None:
    if value is None:
        return None
    if isinstance(value, list | tuple):
        return ToolFilter(_names(value, "allowed_tools"))
    allowed = _filter(value, "allowed_tools")
    return None if allowed == ToolFilter() else allowed


def _approval(value: object) -> Approval:
    match value:
        case None | "always":
            return Approval()
        case "never":
            return Approval(otherwise=False)
        case Mapping():
            return Approval(
                _filter(value.get("always"), "require_approval.always"),
                _filter(value.get("never"), "require_approval.never"),
            )
        case _:
            form = "'always', 'never', or an object with tool filters of these names"
            raise McpSettingsError(f"require_approval must be {form}.", param="require_approval")


def _filter(value: object, param: str) -> ToolFilter:
    if value is None:
        return ToolFilter()
    if not isinstance(value, Mapping):
        raise McpSettingsError(f"{param} must be an object with tool_names or read_only.", param=param)
    names, read_only = value.get("tool_names"), value.get("read_only")
    if read_only is not None and not isinstance(read_only, bool):
        raise McpSettingsError("read_only must be true or false.", param=f"{param}.read_only")
    return ToolFilter(None if names is None else _names(names, f"{param}.tool_names"), read_only)


def _names(value: object, param: str) -> frozenset[str]:
    if not isinstance(value, list | tuple) or not all(isinstance(name, str) for name in value):
        raise McpSettingsError(f"{param} must be a list of tool names.", param=param)
    return frozenset(value)
