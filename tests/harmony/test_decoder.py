"""Decoding: every shape of the table, whole, token by token and cut anywhere; random completions; the cost.

Random and mutated completions (24,000 in `make proofs`) raise nothing, lose no text, and have sums and spans
that fit. A token costs little, and the same at the end of a long response as in a short one.
"""

import random
import time
from collections.abc import Sequence
from itertools import islice

import openai_harmony
import pytest

from gpt_oss_server.harmony.decoder import Decoder
from gpt_oss_server.harmony.encoding import (
    CALL,
    CHANNEL,
    CONSTRAIN,
    END,
    ENDOFTEXT,
    FIRST_SPECIAL,
    MESSAGE,
    RETURN,
    START,
    STOP_IDS,
    load_encoding,
)
from gpt_oss_server.harmony.events import ClosedBy, MessageFinished, SlipKind, TextDelta
from gpt_oss_server.harmony.recipients import Recipients
from tests.doubles.harmony.decoding import check_invariants, decode, messages_of, slips_of
from tests.doubles.harmony.shapes import DECLARED, LEGAL, SHAPES, Message, Shape
from tests.doubles.random_tests.seeds import seeds

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
def test_a_shape_cut_at_any_token_keeps_the_invariants_and_a_legal_one_gives_a_prefix(shape: Shape) -> None:
    tokens = ENCODING.encode_special(shape.completion)
    for cut in range(len(tokens)):
        events = decode(ENCODING, tokens[:cut], DECLARED)
        check_invariants(ENCODING, tokens[:cut], events)
        messages = messages_of(events)
        assert len(messages) <= max(len(shape.messages), 1)
        if shape in LEGAL:
            for message, whole in zip(messages, shape.messages, strict=False):
                assert as_row(message)[:3] == whole[:3]
                assert whole[3].startswith(message.text.rstrip("�"))
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
    assert {kind for shape in SHAPES for kind in shape.slips} | {"spelt_token"} == set(map(str, SlipKind))


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


FINAL = [CHANNEL, *ENCODING.encode("final"), MESSAGE]
BYTES = {ENCODING.ordinary_bytes(token): token for token in range(256)}


def bytes_as_tokens(raw: bytes) -> list[int]:
    return [BYTES[bytes([byte])] for byte in raw]


@pytest.mark.parametrize(
    ("raw", "end", "expected"),
    [
        ("a🧠é".encode(), [RETURN], ["a", "🧠", "é"]),
        ("a🧠".encode()[:-1], [], ["a", "�"]),
        (b"\xf0\x9fab\xa7\x90c", [RETURN], ["�a", "b", "�", "�", "c"]),
        (b"\xf0\x9f", [END], ["�"]),
    ],
    ids=["whole", "cut short", "irreparable, and later text is not delayed", "ended by a special token"],
)
def test_deltas_are_whole_characters(raw: bytes, end: list[int], expected: list[str]) -> None:
    events = decode(ENCODING, [*FINAL, *bytes_as_tokens(raw), *end])
    assert [event.text for event in events if isinstance(event, TextDelta)] == expected
    assert messages_of(events)[0].text == "".join(expected)


def test_broken_bytes_in_a_header_do_no_harm() -> None:
    tokens = [*FINAL[:-1], *bytes_as_tokens(b"\xf0"), MESSAGE, *ENCODING.encode("x"), RETURN]
    events = decode(ENCODING, tokens)
    assert [message.text for message in messages_of(events)] == ["x"]
    check_invariants(ENCODING, tokens, events)


@pytest.mark.parametrize("token", [-1, 199_998, 200_000, 200_013, 201_087, 201_088, 10**9])
def test_ids_without_meaning_are_left_out_of_a_text_and_reported(token: int) -> None:
    tokens = [*FINAL, *ENCODING.encode("a"), token, *ENCODING.encode("b"), RETURN]
    events = decode(ENCODING, tokens)
    assert [message.text for message in messages_of(events)] == ["ab"]
    [slip] = slips_of(events)
    assert slip.kind is SlipKind.RESERVED_TOKEN
    assert str(token) in slip.detail


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
    shape = f"<|channel|>commentary to=functions.{name} <|constrain|>json<|message|>{{}}<|call|>"
    events = decode(ENCODING, ENCODING.encode_special(shape), Recipients(frozenset({name})))
    assert messages_of(events)[0].header.recipient == f"functions.{name}"
    assert slips_of(events) == []


BOTH = Recipients(frozenset({"python", "search"}), frozenset({"python", "browser.search"}))
TWO = Recipients(builtin=frozenset({"browser.search", "docs.search"}))


@pytest.mark.parametrize(
    ("recipients", "word", "known_as", "slip"),
    [
        # A declared function is preferred to a tool of the same name.
        (BOTH, "functions.python", "functions.python", None),
        (BOTH, "search", "functions.search", SlipKind.BARE_RECIPIENT),
        (BOTH, "python", "python", None),
        (TWO, "search", "search", SlipKind.UNDECLARED_RECIPIENT),  # which two tools have
        *((Recipients(frozenset({"f"})), word, word, SlipKind.UNDECLARED_RECIPIENT)
          for word in ("functions.python", "functions.browser.search", "python", "g")),
    ],
)  # fmt: skip
def test_a_recipient_is_known_as(
    recipients: Recipients, word: str, known_as: str, slip: SlipKind | None
) -> None:
    recipient, slips = recipients.resolve(word)
    assert (recipient, [slip.kind for slip in slips]) == (known_as, [slip] if slip else [])


def test_a_closed_decoder_takes_no_tokens() -> None:
    decoder = Decoder(ENCODING)
    decoder.close()
    with pytest.raises(ValueError, match="closed"):
        decoder.feed(1)


def test_tokens_may_continue_after_a_call() -> None:
    one = "<|channel|>commentary to=functions.f json<|message|>{}<|call|>"
    events = decode(ENCODING, ENCODING.encode_special("<|start|>assistant".join([one] * 3)), DECLARED)
    assert [message.text for message in messages_of(events)] == ["{}"] * 3
    assert slips_of(events) == []


def test_json_too_deep_to_read_is_invalid_not_fatal() -> None:
    body = "[" * 20_000
    shape = f"<|channel|>commentary to=functions.f <|constrain|>json<|message|>{body}<|call|>"
    events = decode(ENCODING, ENCODING.encode_special(shape), DECLARED)
    assert messages_of(events)[0].closed_by is ClosedBy.CALL
    assert messages_of(events)[0].text == body
    assert [slip.kind for slip in slips_of(events)] == [SlipKind.INVALID_JSON]


FRAMING = (START, CHANNEL, CONSTRAIN, MESSAGE, END, RETURN, CALL, ENDOFTEXT)
SPELT = (
    "assistant¦final¦analysis¦commentary¦ to=functions.f¦ to=¦to¦=f¦json¦user¦ ¦Hello there, my friend¦"
    'python¦functions.f¦{"a": [1, 2]}¦\n\n¦<|end|>¦I\'m sorry'
)
WORDS = [ENCODING.encode(text) for text in SPELT.split("¦")]
BROKEN_TOKENS = [token for token in range(2_000) if "�" in ENCODING.decode([token])]
BASES = [ENCODING.encode_special(shape.completion) for shape in SHAPES]
NEXT = [START, *ENCODING.encode("assistant")]
LONG = [token for shape in LEGAL for token in ENCODING.encode_special(shape.completion) + NEXT]


def any_token(rng: random.Random) -> list[int]:
    match rng.randrange(10):
        case 0 | 1 | 2 | 3:
            return [rng.choice(FRAMING)]
        case 4 | 5 | 6:
            return rng.choice(WORDS)
        case 7:
            return [rng.choice(BROKEN_TOKENS)]
        case 8:
            return [rng.randrange(FIRST_SPECIAL)]
        case _:
            return [rng.randrange(-2, 201_200)]


def mutated(rng: random.Random, tokens: list[int]) -> list[int]:
    """Drops, doubles, swaps and inserts tokens, special tokens more often than others."""
    tokens = list(tokens)
    for _ in range(rng.randint(1, 5)):
        special = [place for place, token in enumerate(tokens) if token >= FIRST_SPECIAL]
        place = rng.choice(special) if special and rng.random() < 0.6 else rng.randrange(len(tokens) + 1)
        match rng.randrange(5):
            case 0:
                del tokens[place : place + 1]
            case 1:
                tokens[place:place] = tokens[place : place + rng.randint(1, 4)]
            case 2 if tokens:
                other = rng.randrange(len(tokens))
                place = min(place, len(tokens) - 1)
                tokens[place], tokens[other] = tokens[other], tokens[place]
            case 3:
                tokens[place : place + 1] = any_token(rng)
            case _:
                tokens[place:place] = any_token(rng)
    return tokens[: rng.randrange(len(tokens) + 1)] if rng.random() < 0.2 else tokens


@pytest.mark.parametrize("seed", seeds(4, proofs=12))
def test_a_thousand_random_sequences(seed: int) -> None:
    rng = random.Random(seed)
    for _ in range(1_000):
        tokens = [token for _ in range(rng.randint(0, 25)) for token in any_token(rng)]
        check_invariants(ENCODING, tokens, decode(ENCODING, tokens, DECLARED))


@pytest.mark.parametrize("seed", seeds(4, proofs=12))
def test_a_thousand_mutated_shapes(seed: int) -> None:
    rng = random.Random(1_000 + seed)
    for _ in range(1_000):
        tokens = mutated(rng, LONG if rng.random() < 0.05 else rng.choice(BASES))
        check_invariants(ENCODING, tokens, decode(ENCODING, tokens, DECLARED))


PROSE = ENCODING.encode(
    "The quick brown fox jumps over the lazy dog in 東京, and nobody minds 🧠. It is fun!\n"
)
# Tokens of two broken bytes each: the worst case for a parser that retries what it could not decode.
BROKEN = list(islice((token for token in range(FIRST_SPECIAL) if ENCODING.decode([token]) == "��"), 50))
SHORT, LONG_RUN = 500, 50_000


def seconds_per_token(tokens: Sequence[int], count: int) -> float:
    """The fastest of several passes over the last 500 of `count` tokens, with all earlier ones decoded."""
    decoder = Decoder(ENCODING)
    for token in [*FINAL, *(tokens[at % len(tokens)] for at in range(count - SHORT))]:
        decoder.feed(token)
    last = [tokens[at % len(tokens)] for at in range(SHORT)]
    began = time.perf_counter()
    for token in last:
        decoder.feed(token)
    return (time.perf_counter() - began) / SHORT


@pytest.mark.parametrize("tokens", [PROSE, BROKEN, [MESSAGE]], ids=["prose", "broken bytes", "strays"])
def test_the_last_of_50_000_tokens_cost_what_the_last_of_500_do(tokens: Sequence[int]) -> None:
    def ratio() -> float:
        short = min(seconds_per_token(tokens, SHORT) for _ in range(20))
        return min(seconds_per_token(tokens, LONG_RUN) for _ in range(4)) / short

    assert any(ratio() <= 1.2 for _ in range(5))


def test_a_token_of_text_costs_less_than_four_microseconds() -> None:
    """30,000 tokens a second leave 33 µs for the whole server; this is its smallest part."""
    assert min(seconds_per_token(PROSE, SHORT) for _ in range(50)) < 4e-6
