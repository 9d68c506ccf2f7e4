"""Decoding: every shape of the table, whole, token by token and cut anywhere."""

from __future__ import annotations

import json

import openai_harmony
import pytest

from gpt_oss_server.harmony.decoder import Decoder, Recipients
from gpt_oss_server.harmony.encoding import (
    CALL,
    CHANNEL,
    END,
    ENDOFTEXT,
    FIRST_SPECIAL,
    MESSAGE,
    RETURN,
    STOP_IDS,
    load_encoding,
)
from gpt_oss_server.harmony.events import ClosedBy, MessageFinished, SlipKind, TextDelta
from tests.doubles.harmony.decoding import check_invariants, decode, messages_of, slips_of
from tests.doubles.harmony.shapes import DECLARED, LEGAL, Message, Shape
from tests.doubles.harmony.slips import SHAPES

ENCODING = load_encoding()


def named(shapes: tuple[Shape, ...]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("shape", shapes, ids=[shape.name for shape in shapes])


def as_row(message: MessageFinished) -> Message:
    header = message.header
    return header.channel, header.recipient, header.content_type, message.text, str(message.closed_by)


@named(SHAPES)
def test_a_shape_has_its_messages_and_its_slips(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    events = decode(ENCODING, tokens, DECLARED)
    assert tuple(as_row(message) for message in messages_of(events)) == shape.messages
    assert tuple(str(slip.kind) for slip in slips_of(events)) == shape.slips
    check_invariants(ENCODING, tokens, events)


@named(SHAPES)
def test_a_shape_cut_at_any_token_keeps_the_invariants(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    whole = decode(ENCODING, tokens, DECLARED)
    for cut in range(len(tokens)):
        events = decode(ENCODING, tokens[:cut], DECLARED)
        check_invariants(ENCODING, tokens[:cut], events)
        texts = [message.text for message in messages_of(events)]
        assert len(texts) <= max(len(messages_of(whole)), 1)


@named(LEGAL)
def test_a_legal_shape_cut_at_any_token_gives_a_prefix_of_the_whole(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    for cut in range(len(tokens)):
        events = decode(ENCODING, tokens[:cut], DECLARED)
        for message, whole in zip(messages_of(events), shape.messages, strict=False):
            channel, recipient, content_type, text, _ = whole
            header = message.header
            assert (header.channel, header.recipient, header.content_type) == (
                channel,
                recipient,
                content_type,
            )
            assert text.startswith(message.text.rstrip("�"))
        assert {slip.kind for slip in slips_of(events)} <= {SlipKind.CUT_HEADER}


@named(LEGAL)
def test_a_legal_shape_reads_as_the_library_reads_it(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    parsed = ENCODING.library.parse_messages_from_completion_tokens(tokens, openai_harmony.Role.ASSISTANT)
    decoded = [row[:4] for row in map(as_row, messages_of(decode(ENCODING, tokens, DECLARED)))]
    assert decoded == [as_row_of_library(message) for message in parsed]


def as_row_of_library(message: openai_harmony.Message) -> tuple[str | None, str | None, str | None, str]:
    """The library's content types keep the mark; it takes a type without a recipient for the recipient."""
    recipient, content_type = message.recipient, message.content_type
    if recipient is not None and recipient.startswith("<|constrain|>"):
        recipient, content_type = None, recipient
    kind = content_type and content_type.removeprefix("<|constrain|>")
    return message.channel, recipient, kind, message.content[0].text


@named(LEGAL)
def test_deltas_come_as_the_library_streams_them(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    parser = openai_harmony.StreamableParser(ENCODING.library, openai_harmony.Role.ASSISTANT)
    decoder = Decoder(ENCODING, DECLARED)
    in_text = False
    for token in tokens:
        parser.process(token)
        decoded = "".join(event.text for event in decoder.feed(token) if isinstance(event, TextDelta))
        if token < FIRST_SPECIAL and in_text:
            assert decoded == (parser.last_content_delta or "")
        in_text = token == MESSAGE or (in_text and token < FIRST_SPECIAL)


def test_every_kind_of_slip_has_a_shape() -> None:
    assert {kind for shape in SHAPES for kind in shape.slips} | {"spelt_token"} == {
        str(kind) for kind in SlipKind
    }


def test_spelt_marks_are_marks_in_a_header_and_text_in_a_text() -> None:
    letters = ENCODING.encode("<|channel|>commentary <|constrain|>json")
    tokens = [*ENCODING.encode(" to=functions.f"), *letters, MESSAGE, *ENCODING.encode("<|end|>"), CALL]
    events = decode(ENCODING, tokens, DECLARED)
    assert [as_row(message) for message in messages_of(events)] == [
        ("commentary", "functions.f", "json", "<|end|>", "call")
    ]
    assert [slip.kind for slip in slips_of(events)] == [SlipKind.SPELT_TOKEN] * 2 + [SlipKind.INVALID_JSON]


def test_stop_ids_are_those_of_the_library_and_the_end_of_text() -> None:
    assert set(ENCODING.library.stop_tokens_for_assistant_actions()) | {ENDOFTEXT} == STOP_IDS


# Characters


def in_answer(*tokens: int) -> list[int]:
    return [CHANNEL, *ENCODING.encode("final"), MESSAGE, *tokens]


def deltas(tokens: list[int]) -> list[str]:
    return [event.text for event in decode(ENCODING, tokens) if isinstance(event, TextDelta)]


def one_byte(byte: int) -> int:
    return next(token for token in range(256) if ENCODING.ordinary_bytes(token) == bytes([byte]))


def bytes_as_tokens(raw: bytes) -> list[int]:
    return [one_byte(byte) for byte in raw]


def test_no_delta_holds_half_a_character() -> None:
    assert deltas(in_answer(*bytes_as_tokens("a🧠é".encode()), RETURN)) == ["a", "🧠", "é"]


def test_a_character_cut_short_is_one_last_delta() -> None:
    tokens = in_answer(*bytes_as_tokens("a🧠".encode()[:-1]))
    assert deltas(tokens) == ["a", "�"]
    assert messages_of(decode(ENCODING, tokens))[0].text == "a�"


def test_only_irreparable_bytes_are_replaced_and_later_text_is_not_delayed() -> None:
    assert deltas(in_answer(*bytes_as_tokens(b"\xf0\x9fab\xa7\x90c"))) == ["�a", "b", "�", "�", "c"]


def test_a_special_token_ends_a_character() -> None:
    tokens = in_answer(*bytes_as_tokens(b"\xf0\x9f"), END)
    assert messages_of(decode(ENCODING, tokens))[0].text == "�"


def test_broken_bytes_in_a_header_do_no_harm() -> None:
    header = [CHANNEL, *ENCODING.encode("final"), *bytes_as_tokens(b"\xf0")]
    tokens = [*header, MESSAGE, *ENCODING.encode("x"), RETURN]
    events = decode(ENCODING, tokens)
    assert [message.text for message in messages_of(events)] == ["x"]
    check_invariants(ENCODING, tokens, events)


@pytest.mark.parametrize("token", [-1, 199_998, 200_000, 200_013, 201_087, 201_088, 10**9])
def test_ids_without_meaning_are_left_out_of_a_text_and_reported(token: int) -> None:
    tokens = in_answer(*ENCODING.encode("a"), token, *ENCODING.encode("b"), RETURN)
    events = decode(ENCODING, tokens)
    assert [message.text for message in messages_of(events)] == ["ab"]
    assert [slip.kind for slip in slips_of(events)] == [SlipKind.RESERVED_TOKEN]
    assert str(token) in slips_of(events)[0].detail


# Bare text, and the length of headers


def test_a_bare_text_is_streamed_not_kept_until_its_end() -> None:
    tokens = ENCODING.encode("I am sorry, but that is something I can not help you with.")
    decoder = Decoder(ENCODING)
    first = next(place for place, token in enumerate(tokens) if decoder.feed(token))
    assert first <= 6


def test_a_header_of_marks_only_ends() -> None:
    tokens = [CHANNEL] * 1_000 + [*ENCODING.encode("x"), RETURN]
    check_invariants(ENCODING, tokens, decode(ENCODING, tokens))


def test_long_names_are_headers() -> None:
    name = "_".join(["q7"] * 21) + "x"
    recipients = Recipients(functions=frozenset({name}))
    shape = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{{}}<|call|>"
    events = decode(ENCODING, ENCODING.encode_special(shape), recipients)
    assert messages_of(events)[0].header.recipient == f"functions.{name}"
    assert slips_of(events) == []


# Recipients


def test_a_declared_function_is_preferred_to_a_tool_of_the_same_name() -> None:
    recipients = Recipients(frozenset({"python", "search"}), frozenset({"python", "browser.search"}))
    assert recipients.resolve("functions.python")[0] == "functions.python"
    assert recipients.resolve("search")[0] == "functions.search"
    assert recipients.resolve("python")[0] == "python"


def test_a_tool_that_is_off_is_not_called() -> None:
    recipients = Recipients(frozenset({"f"}))
    for word in ("functions.python", "functions.browser.search", "python", "g"):
        recipient, slips = recipients.resolve(word)
        assert recipient == word
        assert [slip.kind for slip in slips] == [SlipKind.UNDECLARED_RECIPIENT]


def test_a_bare_name_that_two_tools_have_is_left_alone() -> None:
    recipients = Recipients(builtin=frozenset({"browser.search", "docs.search"}))
    assert recipients.resolve("search")[0] == "search"


# The life of a decoder


def test_a_closed_decoder_takes_no_tokens() -> None:
    decoder = Decoder(ENCODING)
    decoder.close()
    with pytest.raises(ValueError, match="closed"):
        decoder.feed(1)


def test_tokens_may_continue_after_a_call() -> None:
    one = '<|channel|>commentary to=functions.f json<|message|>{"n": 1}<|call|>'
    tokens = ENCODING.encode_special("<|start|>assistant".join([one] * 3))
    events = decode(ENCODING, tokens, DECLARED)
    assert [json.loads(message.text) for message in messages_of(events)] == [{"n": 1}] * 3
    assert slips_of(events) == []


def test_json_too_deep_to_read_is_invalid_not_fatal() -> None:
    body = "[" * 20_000
    shape = f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{body}<|call|>"
    events = decode(ENCODING, ENCODING.encode_special(shape), DECLARED)
    assert messages_of(events)[0].closed_by is ClosedBy.CALL
    assert messages_of(events)[0].text == body
    assert [slip.kind for slip in slips_of(events)] == [SlipKind.INVALID_JSON]
