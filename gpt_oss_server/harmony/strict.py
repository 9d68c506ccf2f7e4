"""What the library's own parser makes of sampled tokens, for comparison: it stops at most slips."""

from collections.abc import Sequence
from dataclasses import dataclass

import openai_harmony  # type: ignore[import-untyped, unused-ignore]

from gpt_oss_server.harmony.encoding import Encoding


@dataclass(frozen=True, slots=True)
class StrictMessage:
    channel: str | None
    recipient: str | None
    content_type: str | None
    text: str


@dataclass(frozen=True, slots=True)
class StrictReading:
    messages: tuple[StrictMessage, ...]
    stopped_at: int | None = None  # the token that it refused
    error: str = ""


def read_strictly(tokens: Sequence[int], encoding: Encoding) -> StrictReading:
    """The reading of `StreamableParser`. The end of the tokens closes an open message, as for its users."""
    parser = openai_harmony.StreamableParser(encoding.library, openai_harmony.Role.ASSISTANT)
    at, stopped_at, problem = 0, None, ""
    try:
        for token in tokens:
            parser.process(token)
            at += 1
        parser.process_eos()
    except openai_harmony.HarmonyError as error:
        stopped_at, problem = at, str(error)
    return StrictReading(tuple(map(_message, parser.messages)), stopped_at, problem)


def _message(message: openai_harmony.Message) -> StrictMessage:
    text = "".join(getattr(part, "text", "") for part in message.content)
    content_type = (message.content_type or "").removeprefix("<|constrain|>") or None
    return StrictMessage(message.channel, message.recipient, content_type, text)
