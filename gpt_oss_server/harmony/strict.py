"""What the library's own parser makes of sampled tokens, for comparison: it stops at most slips."""

from collections.abc import Sequence
from typing import Any

import openai_harmony  # type: ignore[import-untyped, unused-ignore]

from gpt_oss_server.harmony.encoding import Encoding


def read_strictly(tokens: Sequence[int], encoding: Encoding) -> dict[str, Any]:
    """The reading of `StreamableParser`: its messages, and the token that it refused, with its error.

    The end of the tokens closes an open message, as for its users.
    """
    parser = openai_harmony.StreamableParser(encoding.library, openai_harmony.Role.ASSISTANT)
    at, stopped_at, problem = 0, None, ""
    try:
        for token in tokens:
            parser.process(token)
            at += 1
        parser.process_eos()
    except openai_harmony.HarmonyError as error:
        stopped_at, problem = at, str(error)
    messages = list(map(_message, parser.messages))
    return {"messages": messages, "stopped_at": stopped_at, "error": problem or None}


def _message(message: openai_harmony.Message) -> dict[str, Any]:
    return {
        "channel": message.channel,
        "recipient": message.recipient,
        "content_type": (message.content_type or "").removeprefix("<|constrain|>") or None,
        "text": "".join(getattr(part, "text", "") for part in message.content),
    }
