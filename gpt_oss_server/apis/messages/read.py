"""Reads a message's request as one of the Responses API.

Takes a validated request and the sealer of its caller. Returns the body of the Responses API's request, and
for each of its items the place where the client wrote it, so that errors name that place. Thinking and calls
bring back, sealed, the tokens that the model sampled.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import to_json

from gpt_oss_server.apis.messages.edits import Edits, read_edits
from gpt_oss_server.apis.messages.hosted import CALLS, RESULTS, Block, item_of
from gpt_oss_server.apis.messages.parts import content_parts, parts_of, text_block
from gpt_oss_server.apis.messages.request import CountTokens, CreateMessage, Thoughts
from gpt_oss_server.apis.messages.tools import LaterTools, read_choice, read_tools
from gpt_oss_server.errors import ApiError, InvalidRequest, UnsupportedField
from gpt_oss_server.http.validation import json_type, text_field
from gpt_oss_server.json_values import dicts_of
from gpt_oss_server.stores.sealing import Sealer

# Its last part differs from build to build: in the prompt it would change what every other part is cached by.
_BILLING = "x-anthropic-billing-header:"
_ROLES = ("user", "assistant", "system")
_NAMES = {
    "max_output_tokens": "max_tokens",
    "reasoning.max_tokens": "thinking.budget_tokens",
    "reasoning.effort": "output_config.effort",
    "text.format": "output_config.format",
    "instructions": "system",
    "input": "messages",
}


@dataclass(slots=True)
class Read:
    body: dict[str, Any] = field(default_factory=dict)
    begun: str | None = None  # the text that the answer continues
    thoughts: Thoughts = "shown"
    places: list[str] = field(default_factory=list)  # of the items of the input
    part_places: dict[str, str] = field(default_factory=dict)  # of their parts, by place in the input
    tool_places: list[str] = field(default_factory=list)

    def in_own_words(self, error: ApiError) -> ApiError:
        """The error with the fields of this API's request in place of those of the Responses API."""
        named = re.sub(r"(?<=`)(\w+)(\[(\d{1,9})\])?([\w.\[\]]*)", self._name, error.message)
        return type(error)(named, param=error.param)

    def _name(self, match: re.Match[str]) -> str:
        field_name, _, index, rest = match.groups()
        part = re.match(r"input\[\d+\]\.\w+\[\d+\]", match[0])
        if part is not None and part[0] in self.part_places:
            return self.part_places[part[0]] + match[0].removeprefix(part[0])
        places = {"input": self.places, "tools": self.tool_places}.get(field_name)
        if index is not None and places is not None and int(index) < len(places):
            return f"{places[int(index)]}{rest}"
        for name, own in _NAMES.items():
            if match[0] == name or match[0].startswith(f"{name}."):
                return own + match[0].removeprefix(name)
        return match[0]


def spelling_key(*shown: object) -> str:
    """Names what a client shows of one of the model's messages: a text, or a call's name and input."""
    return hashlib.sha256(json.dumps(_plain(shown), sort_keys=True).encode()).hexdigest()[:16]


def _plain(value: Any) -> Any:
    """Clients in JavaScript send 1.0 back as 1."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def read_request(request: CountTokens, sealer: Sealer) -> Read:
    read = Read()
    tools = read_tools(request.tools or (), request.mcp_servers or (), request.container)
    read.tool_places = tools.places
    conversation, edits = _Conversation(read, sealer, tools.later), read_edits(request)
    past = _past_notes(request.messages)
    for index, message in enumerate(request.messages):
        if index not in past:
            conversation.read(message, f"messages[{index}]")
    conversation.end()
    system, has_tools = "\n\n".join(_system(request.system)), bool(request.tools or request.mcp_servers)
    choice = read_choice(request.tool_choice, tools.tools)
    compaction = {"type": "compaction", "compact_threshold": edits.compact_from}
    read.body |= {
        "model": request.model,
        "input": conversation.items,
        "store": False,
        "include": [
            "reasoning.encrypted_content",
            "web_search_call.results",
            "code_interpreter_call.outputs",
        ],
        **({"instructions": system} if system else {}),
        **({"tools": tools.tools} if has_tools else {}),
        **(choice if has_tools or choice["tool_choice"] not in ("auto", "none") else {}),
        **({} if tools.most_calls is None else {"max_tool_calls": tools.most_calls}),
        "reasoning": _reasoning(request, edits),
        **({} if edits.compact_from is None else {"context_management": [compaction]}),
        **_form(request),
    }
    if request.thinking is None or request.thinking.type == "disabled":
        read.thoughts = "hidden"
    elif request.thinking.display == "omitted":
        read.thoughts = "omitted"
    if isinstance(request, CreateMessage):
        sampling = {name: getattr(request, name) for name in ("temperature", "top_k", "top_p")}
        read.body |= {name: value for name, value in sampling.items() if value is not None}
        read.body["max_output_tokens"] = request.max_tokens
    return read


def _past_notes(messages: list[Any]) -> set[int]:
    """The system messages that are only for the user's turn which they follow."""
    roles = [message.get("role") if isinstance(message, dict) else None for message in messages]
    last = max((index for index, role in enumerate(roles) if role == "user"), default=0)
    cleared = (index for index in range(last) if roles[index] == "system")
    return {index for index in cleared if messages[index].get("clear_at") == "next_user_message"}


def _system(system: Any) -> Iterator[str]:
    if isinstance(system, str):
        yield system
    for index, block in enumerate(system if isinstance(system, list) else ()):
        text = text_block(block, f"system[{index}]")
        if not text.startswith(_BILLING):
            yield text


def _reasoning(request: CountTokens, edits: Edits) -> dict[str, Any]:
    thinking = request.thinking
    wanted: dict[str, Any] = {}
    if request.output_config is not None and request.output_config.effort is not None:
        wanted["effort"] = request.output_config.effort
    if thinking is not None and thinking.type == "disabled":
        wanted["effort"] = "none"
    if thinking is not None and thinking.type == "enabled" and thinking.budget_tokens is not None:
        wanted["max_tokens"] = thinking.budget_tokens
    if edits.thinking_turns is not None:
        wanted["context"] = "all_turns"
    return wanted


def _form(request: CountTokens) -> dict[str, Any]:
    form, where = request.output_format, "output_format"
    if request.output_config is not None and request.output_config.format is not None:
        form, where = request.output_config.format, "output_config.format"
    if form is None:
        return {}
    if form.get("type") != "json_schema":
        raise InvalidRequest.at(f"{where}.type", "must be 'json_schema'.")
    named = {"type": "json_schema", "name": "answer", "schema": form.get("schema"), "strict": True}
    return {"text": {"format": named}}


class _Conversation:
    def __init__(self, read: Read, sealer: Sealer, tools: LaterTools) -> None:
        self.items: list[Block] = []
        self._read, self._sealer, self._tools = read, sealer, tools
        self._role = ""
        self._parts: list[Block] = []  # of a message that is not complete
        self._part_places: list[str] = []
        self._calls: dict[str, tuple[Block, str]] = {}  # of hosted tools, by id, until their results come
        self._uses: dict[str, str] = {}  # where calls of the client's tools are, by id
        self._answered: set[str] = set()
        self._spellings: Mapping[str, Any] = {}

    def read(self, message: Any, where: str) -> None:
        if not isinstance(message, dict):
            raise InvalidRequest.at(where, f"must be an object, but is {json_type(message)}.")
        role, content = message.get("role"), message.get("content")
        if role not in _ROLES:
            raise InvalidRequest.at(f"{where}.role", "must be 'user', 'assistant' or 'system'.")
        at = f"{where}.content"
        if role == "system" and isinstance(config := message.get("output_config"), dict):
            content = [] if content is None else content
            self._add({"type": "configuration_update", "reasoning": {"effort": config.get("effort")}}, where)
        blocks: Any = [{"type": "text", "text": content}] if isinstance(content, str) else content
        if not isinstance(blocks, list):
            raise InvalidRequest.at(at, "must be a text or an array of blocks.")
        self._role = role
        self._spellings = _spellings(blocks)
        for index, block in enumerate(blocks):
            place = f"{at}[{index}]" if isinstance(content, list) else at
            if not isinstance(block, dict):
                raise InvalidRequest.at(place, f"must be an object, but is {json_type(block)}.")
            self._block(block, place)
        self._flush()
        if added := self._tools.take():
            self._add({"type": "additional_tools", "tools": added}, where)

    def end(self) -> None:
        """An assistant's text at the end is the beginning of the answer."""
        for call, where in self._uses.items():
            if call not in self._answered:
                raise InvalidRequest.at(
                    where,
                    f": the call {call!r} has no result. Send a tool_result with this tool_use_id "
                    "in the next message.",
                )
        last = self.items[-1] if self.items else {}
        if last.get("role") == "assistant":
            self._read.begun = "".join(part["text"] for part in last["content"])
            if not self._read.begun.strip():
                where = self._read.places[-1]
                raise InvalidRequest.at(
                    where, ": the text that the answer begins with is empty. Leave the message out."
                )
            self.items.pop()

    def _block(self, block: Block, where: str) -> None:
        kind = block.get("type")
        reader = _READERS.get((self._role, str(kind)))
        if reader is None:
            raise UnsupportedField.at(
                f"{where}.type",
                f": a message of the {self._role} cannot have blocks of type {kind!r} here. "
                "Leave the block out.",
            )
        reader(self, block, where)

    def _flush(self) -> None:
        if not self._parts:
            return
        parts, self._parts = self._parts, []
        places, self._part_places = self._part_places, []
        if self._role == "assistant":
            # Citations cut a text into several blocks.
            text = "".join(part["text"] for part in parts)
            message = {"role": "assistant", "content": [{"type": "output_text", "text": text}]}
            self._add({**message, **self._spelling(text)}, places[0])
        else:
            role = {"system": "developer"}.get(self._role, self._role)
            self._add({"role": role, "content": parts}, places[0], places)

    def _add(self, item: Block, where: str, parts: Sequence[str] = ()) -> None:
        self._flush()
        key = "content" if "content" in item else "output"
        here = f"input[{len(self.items)}].{key}"
        self._read.part_places |= {f"{here}[{at}]": place for at, place in enumerate(parts)}
        self.items.append(item)
        self._read.places.append(where)

    def _spelling(self, *shown: object) -> Block:
        sealed = self._spellings.get(spelling_key(*shown)) if self._spellings else None
        return {"encrypted_content": sealed} if isinstance(sealed, str) else {}

    def part(self, block: Block, where: str) -> None:
        for part in parts_of(block, where):
            self._parts.append(part)
            self._part_places.append(where)

    def tool_result(self, block: Block, where: str) -> None:
        parts = content_parts(block.get("content"), f"{where}.content")
        places = [f"{where}.content[{at}]" for at in range(len(parts))]
        for inner in dicts_of(block.get("content")):
            if inner.get("type") == "tool_reference":
                self._tools.find(inner["tool_name"])
        if block.get("is_error"):
            parts, places = [{"type": "input_text", "text": "Error:"}, *parts], [where, *places]
        call = text_field(block, "tool_use_id", where)
        if call not in self._uses:
            raise InvalidRequest.at(
                f"{where}.tool_use_id",
                f": no tool_use with the id {call!r} comes before this result. Send the "
                "assistant's message that has it too.",
            )
        self._answered.add(call)
        self._add({"type": "function_call_output", "call_id": call, "output": parts}, where, places)

    def tool_addition(self, block: Block, where: str) -> None:
        self._tools.add(block.get("tool"), f"{where}.tool")

    def tool_removal(self, block: Block, where: str) -> None:
        """The model reads it: the head, which declares the tool, stays as it is cached."""
        tool = block.get("tool")
        name = text_field(tool if isinstance(tool, dict) else {}, "name", f"{where}.tool")
        self.part({"type": "text", "text": f"The tool {name} is not available from here on."}, where)

    def thinking(self, block: Block, where: str) -> None:
        text = [{"type": "reasoning_text", "text": str(block.get("thinking") or "")}]
        self._add({"type": "reasoning", "content": text, "encrypted_content": block.get("signature")}, where)

    def redacted_thinking(self, block: Block, where: str) -> None:
        self._flush()
        data = block.get("data")
        if isinstance(data, str) and not data.startswith("{"):
            self._add({"type": "reasoning", "content": [], "encrypted_content": data}, where)

    def tool_use(self, block: Block, where: str) -> None:
        name, inputs = text_field(block, "name", where), block.get("input")
        if not isinstance(inputs, dict):
            raise InvalidRequest.at(f"{where}.input", "must be an object.")
        call_id = text_field(block, "id", where)
        self._uses[call_id] = where
        call = {"type": "function_call", "call_id": call_id, "name": name}
        arguments = to_json(inputs).decode()
        self._add({**call, "arguments": arguments, **self._spelling(name, inputs)}, where)

    def hosted_call(self, block: Block, where: str) -> None:
        self._flush()
        self._calls[text_field(block, "id", where)] = block, where

    def hosted_result(self, block: Block, where: str) -> None:
        call_id = text_field(block, "tool_use_id", where)
        if call_id not in self._calls:
            raise InvalidRequest.at(
                f"{where}.tool_use_id", f": no call {call_id!r} comes before this result."
            )
        call, at = self._calls.pop(call_id)
        self._add(item_of(call, block, at, self._sealer), at)

    def compaction(self, block: Block, where: str) -> None:
        sealed = text_field(block, "encrypted_content", where)
        self._add({"type": "compaction", "encrypted_content": sealed}, where)


def _spellings(blocks: list[Any]) -> Mapping[str, Any]:
    """The sealed messages that a `redacted_thinking` block carries."""
    for block in blocks:
        data = block.get("data") if isinstance(block, dict) else None
        if isinstance(data, str) and data.startswith("{"):
            try:
                read = json.loads(data)
            except ValueError:
                continue
            return read if isinstance(read, dict) else {}
    return {}


_READERS: dict[tuple[str, str], Callable[[_Conversation, Block, str], None]] = {
    **{(role, "text"): _Conversation.part for role in _ROLES},
    **{("user", kind): _Conversation.part for kind in ("image", "document", "search_result")},
    ("user", "tool_result"): _Conversation.tool_result,
    ("system", "tool_addition"): _Conversation.tool_addition,
    ("system", "tool_removal"): _Conversation.tool_removal,
    ("assistant", "thinking"): _Conversation.thinking,
    ("assistant", "redacted_thinking"): _Conversation.redacted_thinking,
    ("assistant", "tool_use"): _Conversation.tool_use,
    ("assistant", "compaction"): _Conversation.compaction,
    **{("assistant", kind): _Conversation.hosted_call for kind in CALLS},
    **{("assistant", kind): _Conversation.hosted_result for kind in RESULTS},
}
