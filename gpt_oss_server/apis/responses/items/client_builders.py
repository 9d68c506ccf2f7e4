"""Decides which builder makes the item of a call that the client runs."""

from __future__ import annotations

from gpt_oss_server.apis.responses.items.client_calls import (
    CustomCallBuilder,
    FunctionCallBuilder,
    with_scores,
)
from gpt_oss_server.apis.responses.items.shaped_calls import (
    ApplyPatchBuilder,
    HostedSearchBuilder,
    LocalShellBuilder,
    ShellBuilder,
    ToolSearchBuilder,
)
from gpt_oss_server.content.logprobs import Speller
from gpt_oss_server.content.tools import ClientTool
from gpt_oss_server.harmony.recipients import called_name
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import ItemBuilder


def unknown_call(ids: Ids, recipient: str, speller: Speller | None) -> ItemBuilder:
    """The item of a call to a tool that the request does not have: a function of this name."""
    return with_scores(
        FunctionCallBuilder(ids("fc"), ids("call"), recipient, called_name(recipient)), speller
    )


def client_builder(
    ids: Ids, tool: ClientTool, *, here: bool = False, speller: Speller | None = None
) -> ItemBuilder:
    """`speller`: of the log-probabilities of functions and custom tools."""
    recipient = tool.recipient
    match tool.kind:
        case "function":
            call = FunctionCallBuilder(ids("fc"), ids("call"), recipient, tool.name, tool.namespace)
            return with_scores(call, speller)
        case "custom":
            text = CustomCallBuilder(ids("ctc"), ids("call"), recipient, tool.name, tool.namespace)
            return with_scores(text, speller)
        case "local_shell":
            return LocalShellBuilder(ids("lsh"), ids("call"), recipient)
        case "shell":
            return ShellBuilder(ids("sh"), ids("call"), recipient)
        case "apply_patch":
            return ApplyPatchBuilder(ids("apc"), ids("call"), recipient)
        case "tool_search":
            if here:
                return HostedSearchBuilder(ids("tsc"), ids("tso"), recipient)
            return ToolSearchBuilder(ids("tsc"), ids("call"), recipient)
