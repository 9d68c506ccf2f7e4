"""What the Harmony library declares and renders, for comparison."""

from __future__ import annotations

from typing import Any, Literal

import openai_harmony

from gpt_oss_server.harmony.declarations import FunctionTool, ToolNamespace
from gpt_oss_server.harmony.encoding import load_encoding


def builtin_namespace(name: Literal["browser", "python"]) -> ToolNamespace:
    """The built-in tool as the model saw it in training."""
    declared = getattr(openai_harmony.ToolNamespaceConfig, name)().model_dump()
    tools = (FunctionTool(one["name"], one["description"], one["parameters"]) for one in declared["tools"])
    return ToolNamespace(declared["name"], declared["description"], tuple(tools))


def rendered(message: Any, *, function_tools: bool = False) -> tuple[int, ...]:
    options = openai_harmony.RenderOptions(conversation_has_function_tools=function_tools)
    return tuple(load_encoding().library.render(message, options))
