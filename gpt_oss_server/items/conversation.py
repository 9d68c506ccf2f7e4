"""The state of reading a list of items into a conversation, item by item.

Takes each item's additions from the reader of its kind. Holds the segments, the calls that outputs may name,
and the approvals. It must not know the kinds of items. Below it are the readers that several kinds share.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.content.parts import text_of
from gpt_oss_server.content.tools import RequestTools, recipient_of
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.harmony.render import CUT_OFF, Renderer
from gpt_oss_server.http.fields import Effort
from gpt_oss_server.http.validation import text_field
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Item
from gpt_oss_server.stores.sealing import Sealer, packed_tokens, unpacked_tokens

RESULT_LOST = "The user approved this call and it was made. Its result is no longer known."
"""The model reads this in place of a result that the client has not kept."""
NOT_KEPT = "(The result was not kept in this conversation.)"
PROGRAM = "program.run"  # the recipient of programs that call the client's functions
_SAMPLED = "sampled message"


def seal_message(sealer: Sealer, message: Segment) -> str:
    """A message of the model, for an item whose text alone would be other tokens."""
    header = json.dumps([message.channel, message.recipient]).encode()
    return sealer.seal(_SAMPLED, header + b"\n" + packed_tokens(message.tokens))


@dataclass(frozen=True, slots=True)
class Approved:
    """A call of an MCP tool that the client has approved."""

    request_id: str
    recipient: str
    arguments: str


@dataclass(slots=True)
class Conversation:
    """The additions of the items read so far."""

    renderer: Renderer
    ids: Ids
    sealer: Sealer
    load_tools: Callable[[Any, str], RequestTools]  # parses the tools of an item at their place
    segments: list[Segment] = field(default_factory=list)
    items: list[Item] = field(default_factory=list)
    sources: list[int] = field(default_factory=list)  # for each segment, its item's place
    recipients: dict[str, str] = field(default_factory=dict)  # call_id → recipient, also of earlier turns
    answered: dict[str, set[str]] = field(default_factory=dict)  # recipient → ids that outputs name
    results: Mapping[str, str] = field(default_factory=dict)  # item id → result that the model read
    # Request id → (recipient, arguments) of calls that wait: for consent, or for outputs of the client.
    approvals: dict[str, tuple[str, str]] = field(default_factory=dict)
    approved: list[Approved] = field(default_factory=list)  # calls that the turn runs first
    servers: Mapping[str, tuple[str, str]] = field(default_factory=dict)  # recipient → (server label, tool)
    compacts: bool = False  # the last item requests a compaction of everything before it
    before_call: bool = False  # the assistant makes a call after the current item in the same turn
    effort: Effort | None = None  # the last value that an item set
    leads: bool = False  # the next item belongs to the conversation's head
    tools: Mapping[str, RequestTools] = field(default_factory=dict)  # parsed tools by their item's place

    def add(self, segment: Segment) -> None:
        self.segments.append(segment)

    def tools_of(self, item: Item, where: str) -> RequestTools:
        return self.tools.get(where) or self.load_tools(item.get("tools"), f"{where}.tools")

    def call(self, where: str, item: Item, recipient: str, arguments: str, content_type: str | None) -> None:
        self.recipients[text_field(item, "call_id", where)] = recipient
        if isinstance(item.get("id"), str):
            self.recipients[item["id"]] = recipient  # local_shell_call_output names its call by `id`
        called = self.renderer.call(recipient, arguments, content_type=content_type)
        self.add(self.as_sampled(item) or called)

    def as_sampled(self, item: Item) -> Segment | None:
        """A message with the tokens that the model sampled, where its item carries them sealed."""
        sealed = item.get("encrypted_content")
        content = self.sealer.open(_SAMPLED, sealed) if isinstance(sealed, str) else None
        if content is None:
            return None
        header, _, packed = content.partition(b"\n")
        return Segment("assistant", unpacked_tokens(packed), *json.loads(header))

    def result(self, where: str, item: Item, text: str) -> None:
        call_id = answered_call(item)
        recipient = self.recipients.get(call_id) if isinstance(call_id, str) else None
        if recipient is None and isinstance(item.get("name"), str):
            recipient = function_recipient(item)
        if recipient is None:
            raise InvalidRequest.at(
                where,
                f": no call with call_id {call_id!r} comes before this output. "
                "Send the call's item too, or the previous_response_id of the response that made it.",
            )
        if isinstance(call_id, str):
            self.answered.setdefault(recipient, set()).add(call_id)
            if recipient == PROGRAM:
                return self.answer_program(call_id, text, where)
        return self.add(self.renderer.tool_result(recipient, text))

    def answer_program(self, call_id: str, output: str, where: str) -> None:
        """Takes what a program waits for; the model reads only what the program prints."""
        for key, (recipient, state) in self.approvals.items():
            program = json.loads(state) if recipient == PROGRAM and call_id in state else {"calls": ()}
            for call in program["calls"]:
                if call["call_id"] == call_id:
                    call["output"] = output
                    self.approvals[key] = (recipient, json.dumps(program))
                    return
        raise InvalidRequest.at(where, f": no program waits for the output of {call_id!r:.100}.")

    def close_cut_call(self, item: Item) -> None:
        """Lets the model read why the call has no output."""
        self.add(self.renderer.tool_result(self.recipients[item["call_id"]], CUT_OFF))

    def was_made(self, request_id: Any, result: str) -> bool:
        """Whether this is the result of an approved call, which then must not run again."""
        call = next((call for call in self.approved if call.request_id == request_id), None)
        if call is None:
            return False
        self.approved.remove(call)
        self.add(self.renderer.tool_result(call.recipient, result))
        return True

    def was_answered(self) -> None:
        """The model has answered since the approvals, so the approved calls have run."""
        for call in self.approved:
            self.add(self.renderer.tool_result(call.recipient, RESULT_LOST))
        self.approved.clear()


def answered_call(item: Mapping[str, Any]) -> Any:
    """The id of the call that this output answers, if it has one."""
    return item.get("call_id") or item.get("id")  # local_shell_call_output has only `id`


def function_recipient(item: Mapping[str, Any]) -> str:
    return recipient_of(item["name"], item.get("namespace"))


ReadItem = Callable[[Item, str, Conversation], None]
"""Adds an item at this place of the body, in the form that the model saw or would see, or raises a 400."""


def read_output(item: Item, where: str, conversation: Conversation) -> None:
    """The result of a call: a text, or parts."""
    conversation.result(where, item, text_of(item.get("output"), f"{where}.output"))


def read_json_output(item: Item, where: str, conversation: Conversation) -> None:
    """The result of a call. If the call has failed, the model also reads its status."""
    output, status = item.get("output"), item.get("status")
    if output is None or status == "failed":
        output = {"status": status, **({"output": output} if output else {})}
    conversation.result(where, item, output if isinstance(output, str) else to_json(output).decode())


def read_action(tool: str, key: str) -> ReadItem:
    """The reader of calls whose shape the API fixes: the item's action is the JSON that the model wrote."""

    def read(item: Item, where: str, conversation: Conversation) -> None:
        """A call that the model made of this tool, whose action is what the model wrote."""
        action = item.get(key)
        if not isinstance(action, dict):
            raise InvalidRequest.at(f"{where}.{key}", "must be an object.")
        written = {k: v for k, v in action.items() if v not in (None, {}) and (k, v) != ("type", "exec")}
        conversation.call(where, item, recipient_of(tool, None), to_json(written).decode(), "json")

    return read
