"""One completion, read again: its messages, the slips with their places, and the library's own reading.

The decoder repeats exactly what it did while the tokens were sampled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.events import ClosedBy, HarmonyEvent, MessageFinished, Slip, SlipKind
from gpt_oss_server.harmony.recipients import Recipients
from gpt_oss_server.harmony.strict import StrictReading, read_strictly


def reading_of(
    tokens: Sequence[int], encoding: Encoding, recipients: Recipients, *, stopped: bool
) -> dict[str, Any]:
    """`stopped`: the model ended the completion itself; only then a header that is cut is a slip."""
    decoder = Decoder(encoding, recipients)
    messages: list[MessageFinished] = []
    slips: list[dict[str, Any]] = []

    def take(event: HarmonyEvent, at: int) -> None:
        if isinstance(event, MessageFinished):
            messages.append(event)
        elif isinstance(event, Slip):
            slips.append({"at": at, "kind": str(event.kind), "detail": event.detail})

    for at, token in enumerate(tokens):
        for event in decoder.feed(token):
            take(event, at)
    for event in decoder.close():
        if stopped or not (isinstance(event, Slip) and event.kind is SlipKind.CUT_HEADER):
            take(event, max(len(tokens) - 1, 0))
    strict = read_strictly(tokens, encoding)
    return {"messages": list(map(_message, messages)), "slips": slips, "library": _library(strict, messages)}


def _message(message: MessageFinished) -> dict[str, Any]:
    span, end = {"start": message.start, "end": message.end}, str(message.closed_by)
    return {**span, **asdict(message.header), "closed_by": end, "text": message.text}


def _library(strict: StrictReading, messages: Sequence[MessageFinished]) -> dict[str, Any]:
    """The library's reading, and whether it agrees with the decoder's in all that a client could notice."""
    own = [(m.header.channel, m.header.recipient, m.text) for m in messages]
    theirs = [(m.channel, m.recipient, m.text) for m in strict.messages]
    if messages and messages[-1].closed_by is ClosedBy.TRUNCATED and len(own) > len(theirs):
        own.pop()  # the library shows no message before its end
    return {
        "messages": list(map(asdict, strict.messages)),
        "stopped_at": strict.stopped_at,
        "error": strict.error or None,
        "agrees": strict.stopped_at is None and own == theirs,
    }
