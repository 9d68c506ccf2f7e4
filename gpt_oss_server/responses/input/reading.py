"""The additions of a list of items to a conversation, while it is read item by item.

In: each item's part of the conversation, from the handler of its kind. Out: segments, the calls that outputs
may name, and consents. It knows no kind of item.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.http.fields import Effort
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.stores.sealing import Sealer
from gpt_oss_server.tooling.client_tools import recipient_of
from gpt_oss_server.tooling.hosted import RESULT_LOST
from gpt_oss_server.tooling.requested import RequestTools, loaded_tools

Item = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Approved:
    """A call to an MCP tool that waited for the client's consent and has it."""

    request_id: str
    recipient: str
    arguments: str


@dataclass(slots=True)
class Conversation:
    """The additions of a list of items, while it is read in order."""

    renderer: Renderer
    ids: Ids
    sealer: Callable[[], Sealer]  # made when it is first needed
    segments: list[Segment] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)  # of each segment the place of its item
    recipients: dict[str, str] = field(default_factory=dict)  # call_id → recipient, earlier turns' included
    results: Mapping[str, str] = field(default_factory=dict)  # item id → what the model read of such a call
    approvals: dict[str, tuple[str, str]] = field(default_factory=dict)  # likewise, of calls that wait
    approved: list[Approved] = field(default_factory=list)  # of calls that are to be made now
    servers: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (server label, tool)
    compacts: bool = False  # the newest item wants all that came before to be compacted
    before_call: bool = False  # the assistant goes on to call something after the item that is read
    effort: Effort | None = None  # the last one that an item has set
    leads: bool = False  # the next item still belongs to the conversation's head
    tools: Mapping[str, RequestTools] = field(default_factory=dict)  # of items, by place, if read before

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def tools_of(self, item: Item, where: str) -> RequestTools:
        return self.tools.get(where) or loaded_tools(item.get("tools"), f"{where}.tools")

    def call(self, where: str, item: Item, recipient: str, arguments: str, content_type: str | None) -> None:
        self.recipients[text_field(item, "call_id", where)] = recipient
        if isinstance(item.get("id"), str):
            self.recipients[item["id"]] = recipient  # what local_shell_call_output names its call by
        self.add(self.renderer.call(recipient, arguments, content_type=content_type))

    def result(self, where: str, item: Item, text: str) -> None:
        call_id = answered_call(item)
        recipient = self.recipients.get(call_id) if isinstance(call_id, str) else None
        if recipient is None and isinstance(item.get("name"), str):
            recipient = function_recipient(item)
        if recipient is None:
            raise InvalidRequest(
                f"`{where}`: no call with call_id {call_id!r} comes before this output. "
                "Send the call's item too, or the previous_response_id of the response that made it.",
                param=where,
            )
        self.add(self.renderer.tool_result(recipient, text))

    def was_made(self, request_id: Any, result: str) -> bool:
        """Whether an approved call has its result here; then it is not made again."""
        made = next((call for call in self.approved if call.request_id == request_id), None)
        if made is None:
            return False
        self.approved.remove(made)
        self.add(self.renderer.tool_result(made.recipient, result))
        return True

    def was_answered(self) -> None:
        """The model has answered since, so calls that were approved before that have been made."""
        for call in self.approved:
            self.add(self.renderer.tool_result(call.recipient, RESULT_LOST))
        self.approved.clear()


def answered_call(item: Mapping[str, Any]) -> Any:
    """The id of the call whose output this is, if it has one."""
    return item.get("call_id") or item.get("id")  # local_shell_call_output has only `id`


def function_recipient(item: Mapping[str, Any]) -> str:
    return recipient_of(item["name"], item.get("namespace"))


Handler = Callable[[Item, str, Conversation], None]
