"""The form that a request requires of a turn: its answer's format, its tool choice, and strict tools.

Takes the choice, the answer's format and the bound tools.
Returns an API-neutral `Wanted`, or raises a 400 that names the field. It must not know whether the engine can
enforce a schema.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.content.answer_form import AnswerFormat
from gpt_oss_server.content.nested import check_flat
from gpt_oss_server.content.tools import ClientTool, RequestTools, namespace_word
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.toolset.bound import HostedTools

Choice = str | dict[str, Any] | None
_TRAINED = ("browser", "python", "container")  # a model knows the forms of their calls
_NAMED = ("function", "custom")  # kinds of tools of which a client may declare many
_Key = tuple[str, str | None, str | None]  # a kind, a name, a namespace


def wanted_of(
    choice: Choice, answer: AnswerFormat, tools: RequestTools, hosted: HostedTools, *, parallel: bool = False
) -> Wanted:
    must_call, only = _choice(choice, tools, hosted)
    return Wanted(
        calls=tools.calls,
        declarations=hosted.declarations,
        guides=_guides(tools, hosted),
        answer=answer.form,
        must_call=must_call,
        only=only,
        parallel=parallel and bool(tools.calls or hosted.declarations),
    )


def _guides(tools: RequestTools, hosted: HostedTools) -> dict[str, Mapping[str, Any]]:
    """The schemas of functions that are not strict, and of tools that run elsewhere or here."""
    guides = {
        f"{declaration.namespace}.{function.name}": function.parameters
        for declaration in hosted.declarations
        for function in declaration.functions
        if function.parameters and declaration.namespace not in _TRAINED
    }
    for tool in tools.clients.values():
        if tool.kind == "function" and tool.form is None and tool.declared.parameters:
            guides[tool.recipient] = tool.declared.parameters
    return guides


def _choice(choice: Choice, tools: RequestTools, hosted: HostedTools) -> tuple[bool, frozenset[str] | None]:
    """Whether the model must call a tool, and the recipients that it may call."""
    where = "tool_choice"
    if choice is None or choice == "auto":
        return False, None
    if choice == "none":
        return False, frozenset()
    if choice == "required":
        return True, None
    if isinstance(choice, str):
        raise InvalidRequest.at(
            where, f"must be 'none', 'auto', 'required' or an object, not {choice!r:.80}."
        )
    clients = _clients_by_key(tools)
    if choice.get("type") != "allowed_tools":
        return True, _recipients(choice, where, tools, hosted, clients)
    check_flat(choice, where, "tools")
    listed, mode = choice.get("tools"), choice.get("mode", "auto")
    if not isinstance(listed, list) or not all(isinstance(tool, dict) for tool in listed) or not listed:
        raise InvalidRequest.at(f"{where}.tools", "must be a list of tools.")
    if mode not in ("auto", "required"):
        raise InvalidRequest.at(f"{where}.mode", "must be 'auto' or 'required'.")
    allowed = [
        _recipients(tool, at, tools, hosted, clients, listed=True)
        for tool, at in ((tool, f"{where}.tools[{index}]") for index, tool in enumerate(listed))
    ]
    return mode == "required", frozenset().union(*allowed)


def _recipients(
    named: Mapping[str, Any],
    where: str,
    tools: RequestTools,
    hosted: HostedTools,
    clients: Mapping[_Key, set[str]],
    *,
    listed: bool = False,
) -> frozenset[str]:
    """The recipients that a reference stands for: a tool, or all tools of a namespace or a server."""
    check_flat(named, where, "name")
    kind, name = named.get("type"), named.get("name")
    if kind == "mcp":
        label = named.get("server_label")
        recipients = {r for r, (of, n) in hosted.servers.names.items() if of == label and name in (None, n)}
        why = hosted.servers.missing.get(namespace_word(label)) if isinstance(label, str) else None
        if why is not None and listed:
            return frozenset()  # the prompt leaves it out too
        if why is not None:
            raise InvalidRequest.at(where, f"names a tool that is unavailable. {why}")
    elif (tool := hosted.kinds.hosted_tool(kind)) is not None:
        if tool.namespace in tools.optional and tool.namespace not in hosted.namespaces:
            return frozenset()  # declared but unavailable: the prompt leaves it out too
        recipients = {r for r in hosted.recipients if r.partition(".")[0] == tool.namespace}
        recipients |= clients.get(_key(named), set())  # the client may run it instead
    else:
        recipients = clients.get(_key(named), set())
    if not recipients:
        meant = name or named.get("server_label") or kind
        raise InvalidRequest.at(where, f"names a tool that `tools` does not declare: {meant!r:.120}.")
    return frozenset(recipients)


def _clients_by_key(tools: RequestTools) -> dict[_Key, set[str]]:
    """The recipients of clients' tools, under each key by which a reference may name them."""
    recipients: dict[_Key, set[str]] = {}
    for tool in tools.clients.values():
        for key in _keys(tool):
            recipients.setdefault(key, set()).add(tool.recipient)
    return recipients


def _keys(tool: ClientTool) -> Iterator[_Key]:
    if tool.namespace is not None:
        yield "namespace", tool.namespace, None
    if tool.kind in _NAMED:
        yield tool.kind, tool.name, None
        yield tool.kind, tool.name, tool.namespace
    else:
        yield tool.kind, None, None


def _key(named: Mapping[str, Any]) -> _Key:
    kind, name, namespace = (named.get(key) for key in ("type", "name", "namespace"))
    if kind not in ("namespace", *_NAMED):
        return str(kind), None, None
    is_text = isinstance(name, str) and isinstance(namespace, str | None)
    return str(kind), name if is_text else None, namespace if is_text and kind in _NAMED else None
