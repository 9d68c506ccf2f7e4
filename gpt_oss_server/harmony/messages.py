"""Harmony tokens as JSON messages: the model's input and output, for a person to read.

They have the form of the Harmony library's own (`to_dict`), with texts as the model sees them. A malformed
header ends up in `name` and `content_type`.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Any

from gpt_oss_server.harmony.encoding import CALL, END, MESSAGE, RETURN, START, Encoding

_ENDS = frozenset({END, CALL, RETURN})
_ROLES = frozenset({"system", "developer", "user", "assistant"})
_AUTHOR = re.compile(r"\s*([^\s<]+)")
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>([^\s<]*)")


def messages_of(tokens: Sequence[int], encoding: Encoding) -> list[dict[str, Any]]:
    """The messages of `tokens`. A cue at the end, which starts the next message, is left out."""
    return [
        _message(encoding.decode(span[:at]), encoding.decode(span[at + 1 :]))
        for span in _spans(tokens)
        if (at := span.index(MESSAGE) if MESSAGE in span else -1) >= 0
    ]


def _spans(tokens: Sequence[int]) -> Iterator[list[int]]:
    """The tokens between each <|start|> and the end of its message."""
    span: list[int] | None = None
    for token in tokens:
        if token == START:
            if span is not None:
                yield span
            span = []
        elif span is not None and token in _ENDS:
            yield span
            span = None
        elif span is not None:
            span.append(token)
    if span is not None:
        yield span


def _message(header: str, text: str) -> dict[str, Any]:
    author = _AUTHOR.match(header)
    named = author[1] if author else ""
    role, _, name = named.partition(":") if named.partition(":")[0] in _ROLES else ("tool", "", named)
    rest = header[author.end() :] if author else header
    recipient, channel = _RECIPIENT.search(rest), _CHANNEL.search(rest)
    words = _CHANNEL.sub(" ", _RECIPIENT.sub(" ", rest)).split()
    fields = {"channel": channel and channel[1], "recipient": recipient and recipient[1]}
    fields["content_type"] = " ".join(words)
    present = {key: value for key, value in fields.items() if value}
    return {"role": role, "name": name or None, "content": [{"type": "text", "text": text}], **present}
