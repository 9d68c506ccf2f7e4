"""Approvals in a chat's messages: calls of hosted tools that run only after the user approves them.

Takes the assistant's past calls, and tool messages with `approve`. Returns the calls to run now, the text
that the model reads for a refused call, and the results of calls approved earlier. A call runs once: an
assistant message after the approval proves that it ran.
"""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.items.conversation import RESULT_LOST
from gpt_oss_server.items.hosted import past_segments
from gpt_oss_server.items.table import Kinds

_FUNCTION = "functions."


@dataclass(frozen=True, slots=True)
class EarlierCall:
    id: str
    recipient: str
    arguments: str
    content_type: str | None

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are not visibly cut off. Free text shows no cut."""
        return self.content_type != "json" or is_object(self.arguments)


@dataclass(slots=True)
class Consents:
    servers: Collection[str] = ()  # recipients of MCP tools, whether or not they need approval
    messages: Sequence[Any] = ()
    approved: list[tuple[str, str]] = field(default_factory=list)  # (recipient, arguments), to run now
    _unanswered: dict[str, EarlierCall] = field(default_factory=dict)  # by id
    _ran: list[str] = field(default_factory=list)  # recipients of calls whose results come next
    _answered: set[int] = field(default_factory=set)  # identities of the messages before the last answer

    def __post_init__(self) -> None:
        roles = [message.get("role") if isinstance(message, dict) else None for message in self.messages]
        last = max((index for index, role in enumerate(roles) if role == "assistant"), default=0)
        self._answered = {id(message) for message in self.messages[:last]}

    def addressed(self, call: EarlierCall) -> EarlierCall:
        """The call, addressed to its MCP tool where it has one: the client sees the tool as a function."""
        recipient = call.recipient.removeprefix(_FUNCTION)
        self._unanswered[call.id] = replace(call, recipient=recipient) if recipient in self.servers else call
        return self._unanswered[call.id]

    def answer(self, message: Mapping[str, Any], reason: str, where: str) -> str | None:
        """The text that the model reads for a refused call; None for an approved one, which has a result.

        Only a call that has yet to run needs its tool. An answered call stays in the history even if its tool
        is no longer sent or needs no approval any more.
        """
        call = self._unanswered.pop(message["tool_call_id"], None)
        approve, answered = message["approve"], id(message) in self._answered
        if call is None or (approve is True and not answered and call.recipient not in self.servers):
            raise InvalidRequest(
                f"`{where}.approve`: the call {message['tool_call_id']!r} is not waiting for approval. Send "
                "the call's MCP tool in `tools`, and approve each call once.",
                param=f"{where}.approve",
            )
        if not isinstance(approve, bool):
            raise InvalidRequest(f"`{where}.approve` must be true or false.", param=f"{where}.approve")
        if approve:
            _check_whole(call, where)
        else:
            why = f" They said: {reason}" if reason else ""
            return f"The user did not approve this call, so it was not made.{why}"
        if answered:
            self._ran.append(call.recipient)
        else:
            self.approved.append((call.recipient, call.arguments))
        return None

    def results(self, ran: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """The results of calls that ran before an assistant message; removes them from its list `ran`."""
        named: dict[str, list[int]] = {}  # the last first
        for index in range(len(ran) - 1, -1, -1):
            named.setdefault(str(ran[index].get("name")), []).append(index)
        taken = set[int]()
        for recipient in self._ran:
            entries = named.get(recipient.removeprefix(_FUNCTION))
            output = None
            if entries:
                taken.add(entries[-1])
                output = ran[entries.pop()].get("output")
            yield recipient, output if isinstance(output, str) else RESULT_LOST
        ran[:] = [entry for index, entry in enumerate(ran) if index not in taken]
        self._ran = []


def _check_whole(call: EarlierCall, where: str) -> None:
    """Rejects a truncated call: its arguments are not those that the model intended."""
    if not is_object(call.arguments):
        raise InvalidRequest(
            f"`{where}.approve`: the arguments of this call are not a JSON object: it was cut off or is "
            "broken. Request the answer again with a larger max_completion_tokens.",
            param=f"{where}.approve",
        )


def is_object(arguments: str) -> bool:
    try:
        return isinstance(json.loads(arguments), dict)
    except (ValueError, RecursionError):
        return False


def ran_here(message: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    ran = message.get("executed_tools")
    return [entry for entry in ran if isinstance(entry, dict)] if isinstance(ran, list) else []


def executed_type(kinds: Kinds, recipient: str) -> str:
    """The `type` of a call in `executed_tools`."""
    tool = kinds.called(recipient)
    return tool.types[0] if tool is not None and tool.types else "mcp"


def segments_of(ran: Sequence[Mapping[str, Any]], renderer: Renderer, kinds: Kinds) -> Iterator[Segment]:
    """Skips entries that name no recipient: other servers use a field of this name too."""
    for call in ran:
        name, arguments, output = (call.get(key) for key in ("name", "arguments", "output"))
        if not (isinstance(name, str) and name and isinstance(arguments, str) and isinstance(output, str)):
            continue
        yield from past_segments(renderer, kinds.called(name), name, arguments, output)
