"""Outputs of a cell: limited, clean, and in order."""

from __future__ import annotations

import base64
import random
from typing import Any

import pytest

from tools.python.outputs import CellOutputLimits, Outputs
from tools.python.wire import Received, received, request

PNG = b"\x89PNG\r\n\x1a\n" + b"rest"


def message(kind: str, content: dict[str, Any], metadata: dict[str, Any] | None = None) -> Received:
    return Received(kind, "1", metadata or {}, content)


def stream(text: Any, cut: Any = None) -> Received:
    return message("stream", {"name": "stdout", "text": text}, {} if cut is None else {"cut": cut})


def picture(content: Any, kind: str = "image/png") -> Received:
    return message("display_data", {"data": {kind: content, "text/plain": "<Figure>"}})


def test_text_that_fits_is_whole() -> None:
    outputs = Outputs(CellOutputLimits(characters=100))
    for part in ("a\n", "b", "c\n"):
        outputs.feed(stream(part))
    assert outputs.text() == "a\nbc\n"
    assert outputs.entries() == [{"type": "logs", "logs": "a\nbc\n"}]


def test_logs_and_images_keep_their_order() -> None:
    outputs = Outputs(CellOutputLimits())
    outputs.feed(stream("before"))
    outputs.feed(picture(base64.b64encode(PNG).decode() + "\n"))
    outputs.feed(message("execute_result", {"data": {"text/plain": "42", "text/html": "<b>42</b>"}}))
    assert outputs.text() == "before\n[image]\n42\n"
    assert [entry["type"] for entry in outputs.entries()] == ["logs", "image", "logs"]
    assert outputs.entries()[1]["url"] == f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


@pytest.mark.parametrize("seed", range(20))
def test_the_middle_is_cut_and_the_count_is_right_however_text_arrives(seed: int) -> None:
    chance = random.Random(seed)
    text = "".join(chance.choice("abcdef\n") for _ in range(chance.randrange(101, 5000)))
    outputs = Outputs(CellOutputLimits(characters=100))
    rest = text
    while rest:
        size = chance.choice([1, 7, 60, 1000])
        outputs.feed(stream(rest[:size]))
        rest = rest[size:]
    note = f"\n[… {len(text) - 100} characters of output were cut here …]\n"
    assert outputs.text() == text[:50] + note + text[-50:]


def test_a_cut_at_the_source_is_counted() -> None:
    outputs = Outputs(CellOutputLimits(characters=100))
    outputs.feed(stream("a" * 200, cut=1000))
    assert "1100 characters" in outputs.text()


def test_a_long_text_with_images_keeps_the_images() -> None:
    outputs = Outputs(CellOutputLimits(characters=100))
    for _ in range(3):
        outputs.feed(stream("x" * 500))
        outputs.feed(picture(base64.b64encode(PNG).decode()))
    assert outputs.text().count("[image]") == 3
    assert "1400 characters" in outputs.text()


def test_images_are_limited_in_number_and_size() -> None:
    outputs = Outputs(CellOutputLimits(images=2, image_bytes=1000))
    for content in (PNG, PNG + b"x" * 1000, PNG, PNG):
        outputs.feed(picture(base64.b64encode(content).decode()))
    assert [entry["type"] for entry in outputs.entries()] == ["image", "logs", "image", "logs"]
    assert "more than 1000 bytes" in outputs.text()
    assert "only 2 are kept" in outputs.text()


def test_an_image_of_none_is_no_image() -> None:
    outputs = Outputs(CellOutputLimits())
    outputs.feed(picture(None))
    assert outputs.text() == "<Figure>\n"


@pytest.mark.parametrize("content", ["", "!!", 5, ["x"], base64.b64encode(b"<html>").decode()])
def test_data_that_is_not_an_image_is_noted_and_not_passed_on(content: Any) -> None:
    outputs = Outputs(CellOutputLimits())
    outputs.feed(picture(content))
    assert "cannot be read" in outputs.text()
    assert all(entry["type"] == "logs" for entry in outputs.entries())


def test_terminal_codes_and_lone_surrogates_are_removed() -> None:
    outputs = Outputs(CellOutputLimits())
    outputs.feed(message("error", {"traceback": ["\x1b[31mZero\x1b[0m", "\x1b]8;;u\x07at \ud800\x00"]}))
    assert outputs.text() == "Zero\nat ?\x00\n"


@pytest.mark.parametrize(
    "content",
    [{}, {"text": None}, {"text": 5}, {"data": 3}, {"data": {"text/plain": {}}}, {"traceback": [None, 1]}],
)
def test_content_of_any_shape_is_accepted(content: dict[str, Any]) -> None:
    for kind in ("stream", "display_data", "execute_result", "error", "status", "comm_open"):
        outputs = Outputs(CellOutputLimits())
        outputs.feed(message(kind, content, {"cut": "many"}))
        outputs.text().encode()


def test_a_request_reads_back_unchanged() -> None:
    frames = request("key", "execute_request", "7", "s", {"code": "x"})
    taken = received([b"identity", *frames])
    assert taken == Received("execute_request", "", {}, {"code": "x"})


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [b"<IDS|MSG>"],
        [b"<IDS|MSG>", b"s", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b"{}", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b"[]", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b'{"msg_type": 3}', b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b'{"msg_type": "a"}', b'{"msg_id": []}', b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b"\xff\xfe", b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b"[" * 200_000, b"{}", b"{}", b"{}"],
        [b"<IDS|MSG>", b"s", b'{"msg_type": ' + b"9" * 10_000 + b"}", b"{}", b"{}", b"{}"],
    ],
)
def test_frames_without_a_message_give_none(frames: list[bytes]) -> None:
    assert received(frames) is None
