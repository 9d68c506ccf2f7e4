"""Runs the decoder in tests, and checks the invariants of its events."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any, Literal

import openai_harmony

from gpt_oss_server.harmony.declarations import FunctionTool, ToolNamespace
from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import END, FIRST_SPECIAL, MESSAGE, STOP_IDS, Encoding, load_encoding
from gpt_oss_server.harmony.events import (
    ClosedBy,
    HarmonyEvent,
    MessageFinished,
    MessageStarted,
    Slip,
    TextDelta,
)
from gpt_oss_server.harmony.recipients import Recipients


def decode(
    encoding: Encoding, tokens: Iterable[int], recipients: Recipients | None = None
) -> list[HarmonyEvent]:
    decoder = Decoder(encoding, recipients)
    events = [event for token in tokens for event in decoder.feed(token)]
    events += decoder.close()
    assert list(decoder.close()) == []
    return events


def messages_of(events: Iterable[HarmonyEvent]) -> list[MessageFinished]:
    return [event for event in events if isinstance(event, MessageFinished)]


def slips_of(events: Iterable[HarmonyEvent]) -> list[Slip]:
    return [event for event in events if isinstance(event, Slip)]


def ordinary_runs(encoding: Encoding, tokens: Sequence[int]) -> Iterator[str]:
    """The texts between special tokens."""
    for ordinary, run in groupby(tokens, lambda token: 0 <= token < FIRST_SPECIAL):
        if ordinary:
            yield encoding.token_bytes(list(run)).decode("utf-8", errors="replace")


def check_invariants(encoding: Encoding, tokens: Sequence[int], events: Sequence[HarmonyEvent]) -> None:
    check_order_and_sums(events)
    check_spans(tokens, messages_of(events))
    check_nothing_is_lost(encoding, tokens, events)


def check_order_and_sums(events: Sequence[HarmonyEvent]) -> None:
    """Messages follow one another, and the text of each is the sum of its deltas."""
    open_header, streamed = None, ""
    for event in events:
        match event:
            case MessageStarted(header):
                assert open_header is None
                open_header, streamed = header, ""
                assert header.channel in ("analysis", "commentary", "final")
            case TextDelta(text):
                assert open_header is not None
                assert text
                streamed += text
            case MessageFinished():
                assert event.header == open_header
                assert event.text == streamed
                open_header = None
            case Slip(_, detail):
                assert detail
    assert open_header is None


def check_spans(tokens: Sequence[int], messages: Sequence[MessageFinished]) -> None:
    covered = 0
    for message in messages:
        assert message.start == covered
        assert message.own_end is not None
        assert message.start < message.own_end <= message.end
        covered = message.end
        ends = tokens[message.own_end - 1] in STOP_IDS | {END}
        assert ends == (message.closed_by in (ClosedBy.END, ClosedBy.RETURN, ClosedBy.CALL))
    assert covered == len(tokens) or not messages


def check_nothing_is_lost(encoding: Encoding, tokens: Sequence[int], events: Sequence[HarmonyEvent]) -> None:
    """Text after <|message|> is in its message exactly; other words are in a text, a header or a slip."""
    messages = messages_of(events)
    details = " ".join(slip.detail for slip in slips_of(events))
    places = [(message.start, message.own_end or 0, message.end, message) for message in messages]
    if not places:
        check_words(encoding, tokens, "", details)
    for start, own_end, end, message in places:
        own = tokens[start:own_end]
        body = own.index(MESSAGE) + 1 if MESSAGE in own else len(own)
        text = "".join(ordinary_runs(encoding, own[body:]))
        assert message.text.endswith(text)
        header = message.header
        known = f" {header.recipient} to={header.recipient} {header.content_type} {header.channel} assistant "
        check_words(encoding, [*own[:body], *tokens[own_end:end]], message.text, known + details)


def check_words(encoding: Encoding, tokens: Sequence[int], text: str, known: str) -> None:
    for run in ordinary_runs(encoding, tokens):
        rest = run.strip()
        while rest and rest not in text:
            word = rest.split()[0]
            while word and word not in known:  # a header's word may be glued to the text after it
                word = word[:-1]
            assert word, f"lost: {rest!r} of {run!r}"
            rest = rest[len(word) :].lstrip()


def builtin_namespace(name: Literal["browser", "python"]) -> ToolNamespace:
    declared = getattr(openai_harmony.ToolNamespaceConfig, name)().model_dump()
    tools = (FunctionTool(one["name"], one["description"], one["parameters"]) for one in declared["tools"])
    return ToolNamespace(declared["name"], declared["description"], tuple(tools))


def rendered(message: Any, *, function_tools: bool = False) -> tuple[int, ...]:
    options = openai_harmony.RenderOptions(conversation_has_function_tools=function_tools)
    return tuple(load_encoding().library.render(message, options))
