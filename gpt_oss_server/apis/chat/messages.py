"""Renders chat messages as Harmony segments: one handler per role, in one table.

Takes the request's `messages`. Returns the segments of the conversation, and the start of the answer where
the request continues its last message. Content that a text model cannot read becomes a note in the prompt; a
message that would silently change the conversation gets a 400 that names it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.content.pairing import Unpaired, in_order_of_calls, unpaired
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.harmony.history import Segment, last_answer
from gpt_oss_server.harmony.render import CUT_OFF, Renderer
from gpt_oss_server.http.validation import json_text, json_type, text_field
from gpt_oss_server.items.hosted import past_segments
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.json_values import dicts_of

Message = Mapping[str, Any]
_NO_WORD = re.compile(r"[^\w.-]+")


@dataclass(frozen=True, slots=True)
class Begun:
    """The start of an answer, given by the request."""

    reasoning: str = ""
    content: str | None = None  # None: the answer continues the reasoning


@dataclass(frozen=True, slots=True)
class EarlierCall:
    id: str
    recipient: str
    arguments: str
    content_type: str | None

    @property
    def is_whole(self) -> bool:
        """Whether its arguments are not visibly cut off. Free text shows no cut."""
        if self.content_type != "json":
            return True
        try:
            return isinstance(json.loads(self.arguments), dict)
        except (ValueError, RecursionError):
            return False


@dataclass(slots=True)
class ReadMessages:
    """The state of reading a conversation, message by message."""

    renderer: Renderer
    kinds: Kinds
    segments: list[Segment] = field(default_factory=list)
    calls: dict[str, EarlierCall] = field(default_factory=dict)  # by tool_call_id
    begun: Begun | None = None
    before_call: bool = False  # a later message of the assistant calls a tool
    names_users: bool = False  # several users take part, so headers carry their names
    executed: set[int] = field(default_factory=set)  # indices of segments that an answer replaces

    def execute(self, segment: Segment) -> None:
        self.executed.add(len(self.segments))
        self.segments.append(segment)

    def close_cut_call(self, call_id: str, where: str) -> None:
        """Lets the model read why a cut call has no result. A whole call needs one."""
        call = self.calls[call_id]
        if call.is_whole:
            raise InvalidRequest(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {call_id}",
                param=where,
            )
        self.segments.append(self.renderer.tool_result(call.recipient, CUT_OFF))

    def drop_answered(self) -> None:
        """Drops hosted calls before the newest answer; otherwise every page read stays in the prompt."""
        answer = last_answer(self.segments)
        self.segments = [
            segment
            for index, segment in enumerate(self.segments)
            if index > answer or index not in self.executed
        ]


def read_messages(
    messages: Sequence[Any], renderer: Renderer, kinds: Kinds, *, continues_last: bool
) -> ReadMessages:
    conversation = ReadMessages(renderer, kinds)
    users = [message for message in dicts_of(messages) if message.get("role") == "user"]
    conversation.names_users = len({_word(user.get("name")) for user in users}) > 1
    before_call = _before_calls(messages)
    answers = _answers(messages)
    placed = in_order_of_calls(messages, calls=_called_names, answers=_answered_by)
    for index, message in placed:
        if index in answers.replaced:
            continue
        where = f"messages[{index}]"
        if not isinstance(message, dict):
            raise InvalidRequest.at(where, f"must be a message object, but is {json_type(message)}.")
        conversation.before_call = before_call[index]
        if continues_last and index == len(messages) - 1:
            conversation.begun = _begun(message, where)
        else:
            handler = _HANDLERS.get(str(role := message.get("role")))
            if handler is None:
                roles = ", ".join(_HANDLERS)
                raise InvalidRequest.at(f"{where}.role", f"must be one of {roles}, not {role!r}.")
            handler(message, where, conversation)
            for call_id in answers.unanswered.get(index, ()):
                conversation.close_cut_call(call_id, where)
    conversation.drop_answered()
    return conversation


def _answers(messages: Sequence[Any]) -> Unpaired:
    """Results that a later one replaces, and calls without a result, by the place of their message."""
    pairs = unpaired(
        messages, calls=lambda each: [[call] for call in _called_names(each)], answers=_answered_by
    )
    named = {message["name"]: index for index, message in enumerate(messages) if _answers_by_name(message)}
    unanswered = dict[int, tuple[str, ...]]()
    for index, ids in pairs.unanswered.items():
        names = _called_names(messages[index])
        if left := tuple(each for each in ids if named.get(names[each], -1) < index):
            unanswered[index] = left
    return Unpaired(pairs.replaced, unanswered)


def _answered_by(message: Any) -> str | None:
    """The id of the call that a message answers, if it names one."""
    call = message.get("tool_call_id") if _is_result(message) else None
    return call if isinstance(call, str) else None


def _answers_by_name(message: Any) -> bool:
    return _is_result(message) and _answered_by(message) is None and isinstance(message.get("name"), str)


def _is_result(message: Any) -> bool:
    return isinstance(message, dict) and message.get("role") == "tool"


def _called_names(message: Any) -> dict[str, str]:
    """The names of the called functions by the id of the call."""
    if not isinstance(message, dict) or message.get("role") != "assistant":
        return {}
    calls = dicts_of(message.get("tool_calls"))
    return {call["id"]: _name(call) for call in calls if isinstance(call.get("id"), str)}


def _name(call: Mapping[str, Any]) -> str:
    called = call.get("function") or call.get("custom")
    return str(called.get("name")) if isinstance(called, dict) else ""


def _before_calls(messages: Sequence[Any]) -> list[bool]:
    """For each message, whether a call follows in the same run of assistant messages: it is a preamble."""
    flags, call_follows = [], False
    for message in reversed(messages):
        flags.append(call_follows)
        if not isinstance(message, dict) or message.get("role") != "assistant":
            call_follows = False
        elif message.get("tool_calls"):
            call_follows = True
    return flags[::-1]


def _word(name: Any) -> str | None:
    """The name, reduced to the characters that a header can carry."""
    return _NO_WORD.sub("_", name)[:64] or None if isinstance(name, str) else None


def _content(message: Message, where: str) -> str:
    if "content" not in message:
        raise InvalidRequest.at(f"{where}.content", "is missing.")
    _check_no_audio(message["content"], f"{where}.content")
    return text_of(message["content"], f"{where}.content")


def _check_no_audio(content: Any, where: str) -> None:
    """No note can replace speech: a picture accompanies a question, but speech is the question."""
    for index, part in enumerate(content if isinstance(content, list) else ()):
        if isinstance(part, dict) and part.get("type") == "input_audio":
            raise UnsupportedField(
                f"`{where}[{index}]`: this model cannot hear. Send a transcript as text.",
                param=f"{where}[{index}].type",
            )


def _user(message: Message, where: str, conversation: ReadMessages) -> None:
    name = message.get("name") if conversation.names_users else None
    conversation.segments.append(conversation.renderer.user(_content(message, where), name=_word(name)))


def _developer(message: Message, where: str, conversation: ReadMessages) -> None:
    conversation.segments.append(conversation.renderer.developer_message(_content(message, where)))


def _assistant(message: Message, where: str, conversation: ReadMessages) -> None:
    """Adds reasoning, hosted calls, text, then client calls. Text before a call is a preamble."""
    renderer, add = conversation.renderer, conversation.segments.append
    ran = dicts_of(message.get("executed_tools"))
    if reasoning := _reasoning(message, where):
        add(renderer.reasoning(reasoning))
    for segment in _segments_of(ran, renderer, conversation.kinds):
        conversation.execute(segment)
    content = text_of(message.get("content"), f"{where}.content")
    content = content or text_of(message.get("refusal"), f"{where}.refusal")
    calls = _calls(message, where)
    if content or not (reasoning or calls or ran):
        is_preamble = bool(calls) or conversation.before_call
        add(renderer.preamble(content) if is_preamble else renderer.answer(content))
    for call in calls:
        conversation.calls[call.id] = call
        add(renderer.call(call.recipient, call.arguments, content_type=call.content_type))


def _segments_of(ran: Sequence[Mapping[str, Any]], renderer: Renderer, kinds: Kinds) -> Iterator[Segment]:
    """Skips entries that name no recipient: other servers use a field of this name too."""
    for call in ran:
        name, arguments, output = (call.get(key) for key in ("name", "arguments", "output"))
        if not (isinstance(name, str) and name and isinstance(arguments, str) and isinstance(output, str)):
            continue
        yield from past_segments(renderer, kinds.called(name), name, arguments, output)


def _reasoning(message: Message, where: str) -> str:
    for key in ("reasoning", "reasoning_content"):
        if text := text_of(message.get(key), f"{where}.{key}"):
            return text
    return ""


def _calls(message: Message, where: str) -> list[EarlierCall]:
    calls = message.get("tool_calls") or []
    if not isinstance(calls, list):
        raise InvalidRequest.at(f"{where}.tool_calls", "must be an array.")
    return [_call(call, f"{where}.tool_calls[{index}]") for index, call in enumerate(calls)]


def _call(call: Any, where: str) -> EarlierCall:
    if not isinstance(call, dict):
        raise InvalidRequest.at(where, f"must be an object, but is {json_type(call)}.")
    call_id, is_custom = text_field(call, "id", where), call.get("type") == "custom"
    kind, key = ("custom", "input") if is_custom else ("function", "arguments")
    called, at = call.get(kind), f"{where}.{kind}"
    if not isinstance(called, dict):
        raise InvalidRequest.at(at, f"must be an object with name and {key}.")
    name, text = text_field(called, "name", at), json_text(called, key, at)
    return EarlierCall(call_id, f"functions.{name}", text, None if is_custom else "json")


def _tool(message: Message, where: str, conversation: ReadMessages) -> None:
    call_id = message.get("tool_call_id")
    call = conversation.calls.get(call_id) if isinstance(call_id, str) else None
    recipient = call.recipient if call is not None else None
    if recipient is None and isinstance(message.get("name"), str):
        recipient = f"functions.{message['name']}"
    if recipient is None:
        raise InvalidRequest.at(
            f"{where}.tool_call_id",
            f": no call with id {call_id!r} comes before this result. Also send the "
            "assistant's message with its tool_calls.",
        )
    conversation.segments.append(conversation.renderer.tool_result(recipient, _content(message, where)))


def _begun(message: Message, where: str) -> Begun:
    if message.get("role") != "assistant" or message.get("tool_calls"):
        raise InvalidRequest.at(
            "continue_final_message", "needs a last message from the assistant that has no calls."
        )
    reasoning = _reasoning(message, where)
    content = text_of(message.get("content"), f"{where}.content")
    return Begun(reasoning, None if reasoning and not content else content)


Handler = Callable[[Message, str, ReadMessages], None]
_HANDLERS: dict[str, Handler] = {
    "system": _developer,
    "developer": _developer,
    "user": _user,
    "assistant": _assistant,
    "tool": _tool,
}
