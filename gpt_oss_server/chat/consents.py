"""Calls that a tool of ours makes only when the user agrees, as they stand in a chat's messages.

In: the assistant's past calls, and tool messages with `approve`. Out: which calls are to be made now, what a
refusal tells the model, and what became of calls that were agreed to before. An answer of the assistant's
after an agreement says that the call was made: it is never made twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.tooling.hosted import RESULT_LOST

_FUNCTION = "functions."


@dataclass(frozen=True, slots=True)
class PastCall:
    id: str
    recipient: str
    arguments: str
    content_type: str | None


@dataclass(slots=True)
class Consents:
    servers: Collection[str] = ()  # recipients of MCP tools, be they asked about or not
    missing: Collection[str] = ()  # why servers of the request are not there
    messages: Sequence[Any] = ()
    agreed: list[tuple[str, str]] = field(default_factory=list)  # (recipient, arguments), to be made now
    _calls: dict[str, PastCall] = field(default_factory=dict)  # those without an answer, by id
    _made: list[str] = field(default_factory=list)  # recipients of calls whose results come next

    def addressed(self, call: PastCall) -> PastCall:
        """To the tool that runs here, if it is one of those; the client has it as a function."""
        recipient = call.recipient.removeprefix(_FUNCTION)
        self._calls[call.id] = replace(call, recipient=recipient) if recipient in self.servers else call
        return self._calls[call.id]

    def answer(self, message: Mapping[str, Any], reason: str, where: str) -> str | None:
        """What the model is told of the user's answer to a call; None where the call itself will tell.

        Only a call that is to be made needs its tool: what was answered once stays in the history, whether
        or not its tool is still sent, asks first or can be reached.
        """
        call = self._calls.pop(message["tool_call_id"], None)
        approve, answered = message["approve"], self._is_answered(message)
        if call is None or (approve is True and not answered and call.recipient not in self.servers):
            why = (
                " ".join(self.missing) or "Send the MCP tool that it is of in `tools`, and an approval once."
            )
            raise InvalidRequest(
                f"`{where}.approve`: the call {message['tool_call_id']!r} waits for no approval. {why}",
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
            self._made.append(call.recipient)
        else:
            self.agreed.append((call.recipient, call.arguments))
        return None

    def results(self, ran: list[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
        """Of calls that were made before a message of the assistant's; taken out of what ran with it."""
        for recipient in self._made:
            name = recipient.removeprefix(_FUNCTION)
            found = next((each for each in ran if each.get("name") == name), None)
            output = found.get("output") if found is not None else None
            if found is not None:
                ran.remove(found)
            yield recipient, output if isinstance(output, str) else RESULT_LOST
        self._made = []

    def _is_answered(self, message: Mapping[str, Any]) -> bool:
        place = next(index for index, each in enumerate(self.messages) if each is message)
        after = self.messages[place + 1 :]
        return any(isinstance(each, dict) and each.get("role") == "assistant" for each in after)


def _check_whole(call: PastCall, where: str) -> None:
    """A call that was cut off is not what the model meant to do."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = None
    if not isinstance(arguments, dict):
        raise InvalidRequest(
            f"`{where}.approve`: the arguments of this call are no JSON object: it was cut off or is broken. "
            "Ask for the answer again, with a larger max_completion_tokens.",
            param=f"{where}.approve",
        )
