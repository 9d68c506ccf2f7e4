"""Outputs of a cell: limited, clean, and in order; and what the model writes instead of bare source."""

import base64
import json
import random
from typing import Any

import pytest

from tools.python.channel import Received, received, request
from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.session import read_source

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"


def message(kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> Received:
    return Received(kind, "1", metadata or {}, content)


def stream(text: Any, cut: Any = None) -> Received:
    return message("stream", {"name": "stdout", "text": text}, {} if cut is None else {"cut": cut})


def picture(content: Any) -> Received:
    encoded = base64.b64encode(content).decode() if isinstance(content, bytes) else content
    return message("display_data", {"data": {"image/png": encoded, "text/plain": "<Figure>"}})


def fed(*messages: Received, **limits: int) -> Outputs:
    outputs = Outputs(CellOutputLimits(**limits))
    for one in messages:
        outputs.feed(one)
    return outputs


def test_text_that_fits_is_whole() -> None:
    outputs = fed(*map(stream, ("a\n", "b", "c\n")), characters=100)
    assert outputs.text() == "a\nbc\n"
    assert outputs.entries() == [{"type": "logs", "logs": "a\nbc\n"}]


def test_logs_and_images_keep_their_order() -> None:
    result = message("execute_result", {"data": {"text/plain": "42", "text/html": "<b>42</b>"}})
    outputs = fed(stream("before"), picture(base64.b64encode(PNG).decode() + "\n"), result)
    assert outputs.text() == "before\n[image]\n42\n"
    assert [entry["type"] for entry in outputs.entries()] == ["logs", "image", "logs"]
    assert outputs.entries()[1]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.mark.parametrize("seed", range(20))
def test_the_middle_is_cut_and_the_count_is_right_however_text_arrives(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice("abcdef\n") for _ in range(chance.randrange(101, 5000)))
    parts, rest = [], text
    while rest:
        size = chance.choice([1, 7, 60, 1000])
        parts.append(stream(rest[:size]))
        rest = rest[size:]
    note = f"\n[… {len(text) - 100} characters of output were cut here …]\n"
    assert fed(*parts, characters=100).text() == text[:50] + note + text[-50:]


def test_a_cut_at_the_source_is_counted() -> None:
    assert "1100 characters" in fed(stream("a" * 200, cut=1000), characters=100).text()


def test_a_long_text_with_images_keeps_the_images() -> None:
    text = fed(*[stream("x" * 500), picture(PNG)] * 3, characters=100).text()
    assert text.count("[image]") == 3
    assert "1400 characters" in text


def test_images_are_limited_in_number_and_size() -> None:
    outputs = fed(*map(picture, (PNG, PNG + b"x" * 1000, PNG, PNG)), images=2, image_bytes=1000)
    assert [entry["type"] for entry in outputs.entries()] == ["image", "logs", "image", "logs"]
    assert "more than 1000 bytes" in outputs.text()
    assert "only 2 are kept" in outputs.text()


def test_an_image_of_none_is_no_image() -> None:
    assert fed(picture(None)).text() == "<Figure>\n"


@pytest.mark.parametrize("content", ["", "!!", 5, ["x"], b"<html>"])
def test_data_that_is_not_an_image_is_noted_and_not_passed_on(content: Any) -> None:
    outputs = fed(picture(content))
    assert "cannot be read" in outputs.text()
    assert all(entry["type"] == "logs" for entry in outputs.entries())


def test_terminal_codes_and_lone_surrogates_are_removed() -> None:
    traceback = ["\x1b[31mZero\x1b[0m", "\x1b]8;;u\x07at \ud800\x00"]
    assert fed(message("error", {"traceback": traceback})).text() == "Zero\nat ?\x00\n"


@pytest.mark.parametrize(
    "content",
    [{}, {"text": None}, {"text": 5}, {"data": 3}, {"data": {"text/plain": {}}}, {"traceback": [None, 1]}],
)
def test_content_of_any_shape_is_accepted(content: dict[str, Any]) -> None:
    for kind in ("stream", "display_data", "execute_result", "error", "status", "comm_open"):
        fed(message(kind, content, {"cut": "many"})).text().encode()


def test_a_request_reads_back_unchanged() -> None:
    frames = request("key", "execute_request", "7", "s", {"code": "x"})
    taken = received([b"identity", *frames])
    assert taken == Received("execute_request", "", {}, {"code": "x"})


LARGE = (b"[" * 200_000, b'{"msg_type": ' + b"9" * 10_000 + b"}")
HEADERS = (b"{}", b"[]", b'{"msg_type": 3}', b"\xff\xfe", *LARGE)
MARK = [b"<IDS|MSG>", b"s"]
ODD_PARENT = [*MARK, b'{"msg_type": "a"}', b'{"msg_id": []}', b"{}", b"{}"]


@pytest.mark.parametrize(
    "frames",
    [
        *([], MARK[:1], [*MARK, b"{}", b"{}"], ODD_PARENT),
        *([*MARK, header, b"{}", b"{}", b"{}"] for header in HEADERS),
    ],
    ids=range(10),
)
def test_frames_without_a_message_give_none(frames: list[bytes]) -> None:
    assert received(frames) is None


MEANT = "x = 1\nprint('a\\nb')"


@pytest.mark.parametrize(
    "written",
    [
        *(MEANT, json.dumps({"code": MEANT}), json.dumps({"source": MEANT})),
        *("  " + json.dumps({"input": MEANT}) + "\n", '{"code": "x = 1\nprint(\'a\\\\nb\')"}'),
        *(f"```python\n{MEANT}\n```", f"```py\n{MEANT}\n```\n", f"```\n{MEANT}\n```", f"```python\n{MEANT}"),
        *(f"\n```Python\r\n{MEANT}\n```  ", json.dumps({"code": f"```python\n{MEANT}\n```"})),
    ],
)
def test_slips_are_read_as_the_intended_source(written: str) -> None:
    assert read_source(written) == MEANT


@pytest.mark.parametrize(
    "source",
    [
        *("", "{'code': 'x'}", '{"code": 1}', '{"code": "x", "other": "y"}', '{"a": 1}["a"]'),
        *('{"code": "x"}["code"]', '{"code": ', "s = '```python\\nx\\n```'", '"""```"""', "%timeit 1"),
        *("```python\na\n```\ntext\n```python\nb\n```", "[" * 100_000, '{"a":' * 100_000),
    ],
)
def test_anything_else_is_source_unchanged(source: str) -> None:
    assert read_source(source) == source
