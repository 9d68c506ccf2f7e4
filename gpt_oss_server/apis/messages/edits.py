"""What a request leaves out of its own conversation: `context_management`.

Takes the edits and the messages. Returns the messages that the model reads, and what was cleared. It must not
know how long a prompt is.
"""

import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gpt_oss_server.apis.messages.request import CountTokens
from gpt_oss_server.errors import InvalidRequest, UnsupportedField
from gpt_oss_server.json_values import dicts_of

Messages = Sequence[Any]
_CLEARED = "[This result was cleared from the conversation.]"
_THOUGHTS = ("thinking", "redacted_thinking")


@dataclass(frozen=True, slots=True)
class ToolUses:
    """From `trigger` on, the results of all calls but the newest `keep` are cleared."""

    trigger: tuple[str, int]  # "input_tokens" or "tool_uses", and their number
    keep: int
    least: int  # tokens; if fewer would be cleared, none are
    exclude: tuple[str, ...]  # names of tools whose results stay
    inputs: bool | tuple[str, ...]  # whether the inputs are cleared too; or those of these tools


@dataclass(frozen=True, slots=True)
class Edits:
    thinking_turns: int | None = None  # that keep their thinking; None: as Harmony has it, the current one
    tool_uses: ToolUses | None = None
    compact_from: int | None = None  # tokens of the prompt


_ALL = 2**40


def read_edits(request: CountTokens) -> Edits:
    read: dict[str, Any] = {}
    for index, edit in enumerate((request.context_management and request.context_management.edits) or ()):
        where = f"context_management.edits[{index}]"
        match edit.get("type"):
            case "clear_thinking_20251015":
                keep = edit.get("keep", {"type": "thinking_turns", "value": 1})
                is_all = keep == "all" or (isinstance(keep, dict) and keep.get("type") == "all")
                count = _ALL if is_all else _count(keep, ("thinking_turns",), f"{where}.keep")[1]
                read["thinking_turns"] = count
            case "clear_tool_uses_20250919":
                read["tool_uses"] = _tool_uses(edit, where)
            case "compact_20260112":
                if edit.get("instructions") is not None or edit.get("pause_after_compaction"):
                    raise UnsupportedField.at(
                        where, ": a compaction here has no instructions and no pause. Leave them out."
                    )
                trigger = edit.get("trigger") or {"type": "input_tokens", "value": 150_000}
                read["compact_from"] = _count(trigger, ("input_tokens",), f"{where}.trigger")[1]
            case kind:
                raise UnsupportedField.at(
                    f"{where}.type", f": edits of type {kind!r} are not served. Leave the edit out."
                )
    return Edits(**read)


def _tool_uses(edit: dict[str, Any], where: str) -> ToolUses:
    trigger = edit.get("trigger") or {"type": "input_tokens", "value": 100_000}
    keep = edit.get("keep") or {"type": "tool_uses", "value": 3}
    least = edit.get("clear_at_least") or {"type": "input_tokens", "value": 0}
    inputs = edit.get("clear_tool_inputs") or False
    return ToolUses(
        _count(trigger, ("input_tokens", "tool_uses"), f"{where}.trigger"),
        _count(keep, ("tool_uses",), f"{where}.keep")[1],
        _count(least, ("input_tokens",), f"{where}.clear_at_least")[1],
        tuple(edit.get("exclude_tools") or ()),
        inputs if isinstance(inputs, bool) else tuple(inputs),
    )


def _count(value: Any, kinds: Sequence[str], where: str) -> tuple[str, int]:
    kind, count = (value.get("type"), value.get("value")) if isinstance(value, dict) else ("", None)
    if kind not in kinds or not isinstance(count, int) or isinstance(count, bool) or count < 0:
        example = json.dumps({"type": kinds[0], "value": 3})
        raise InvalidRequest.at(where, f"must be an object such as {example}.")
    return str(kind), count


def without_thinking(messages: Messages, turns: int) -> tuple[Messages, int]:
    """Only the newest turns keep their thinking. Returns how many lose it, too."""
    starts = [index for index, message in enumerate(messages) if _begins_turn(message)]
    first = len(messages) if not turns else starts[-turns] if turns <= len(starts) else 0
    edited, cleared = list(messages), set[int]()
    for index, message in enumerate(messages[:first]):
        blocks = _blocks(message)
        kept = [block for block in blocks if block.get("type") not in _THOUGHTS or _is_spelling(block)]
        if len(kept) < len(blocks):
            edited[index] = {**message, "content": kept}
            cleared.add(bisect_right(starts, index))
    return edited, len(cleared)


def _is_spelling(block: dict[str, Any]) -> bool:
    return str(block.get("data")).startswith("{")


def _begins_turn(message: Any) -> bool:
    """Whether it is a user's message that has more than the results of calls."""
    if not isinstance(message, dict) or message.get("role") != "user":
        return False
    blocks = _blocks(message)
    return not blocks or any(block.get("type") != "tool_result" for block in blocks)


def _blocks(message: Any) -> list[dict[str, Any]]:
    content = message.get("content") if isinstance(message, dict) else None
    blocks = dicts_of(content)
    return blocks if isinstance(content, list) and len(blocks) == len(content) else []


def tool_uses(messages: Messages) -> list[dict[str, Any]]:
    return [block for message in messages for block in _blocks(message) if block.get("type") == "tool_use"]


def without_results(messages: Messages, edit: ToolUses) -> tuple[Messages, int]:
    """The results of older calls become a note. Returns how many do, too."""
    calls = [call for call in tool_uses(messages) if call.get("name") not in edit.exclude]
    old = {call.get("id") for call in calls[: len(calls) - edit.keep] if len(calls) > edit.keep}

    def edited(block: dict[str, Any]) -> dict[str, Any]:
        if block.get("type") == "tool_result" and block.get("tool_use_id") in old:
            return {**block, "content": _CLEARED}
        clears = edit.inputs if isinstance(edit.inputs, bool) else block.get("name") in edit.inputs
        if clears and block.get("type") == "tool_use" and block.get("id") in old:
            return {**block, "input": {}}
        return block

    read = [
        {**message, "content": [edited(block) for block in blocks]}
        if (blocks := _blocks(message))
        else message
        for message in messages
    ]
    return read, len(old)
