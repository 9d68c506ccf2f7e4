"""Files in a request: text in any encoding is read, any other is refused. Biases of tokens, bad words."""

import base64
import random
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from gpt_oss_server.content.biases import logit_bias
from gpt_oss_server.content.parts import file_text, text_of
from gpt_oss_server.errors import ApiError, InvalidRequest
from gpt_oss_server.harmony.encoding import VOCABULARY_SIZE
from gpt_oss_server.settings import Settings
from tests.doubles.apis.asking import FINAL, Asking
from tests.doubles.apis.chat_asking import prompt_of
from tests.doubles.serving import scripted, serving

TEXT = "Opening hours: 9–17 Uhr.\n\tClosed on 東京 day.\n"
PDF = b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n\x00"


def b64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


READ: dict[str, dict[str, Any]] = {
    "base64": {"file_data": b64(TEXT.encode())},
    "base64 with line breaks": {"file_data": base64.encodebytes(TEXT.encode()).decode()},
    "base64 without padding": {"file_data": b64(TEXT.encode()).rstrip("=")},
    "data URL": {"file_data": f"data:text/plain;base64,{b64(TEXT.encode())}"},
    "data URL with a charset": {"file_data": f"data:text/csv;charset=utf-8;base64,{b64(TEXT.encode())}"},
    "data URL as file_url": {"file_url": f"DATA:application/json;base64,{b64(TEXT.encode())}"},
    "data URL without base64": {"file_data": f"data:,{quote(TEXT)}"},
    "plain text": {"file_data": TEXT},
    "a byte order mark": {"file_data": b64(b"\xef\xbb\xbf" + TEXT.encode())},
    "UTF-16": {"file_data": b64(TEXT.encode("utf-16"))},
}


@pytest.mark.parametrize("how", READ)
def test_a_text_file_is_read(how: str) -> None:
    first = "[The file named 'hours.txt' that was attached here:]"
    last = "[The end of the file named 'hours.txt'.]"
    assert file_text({"filename": "hours.txt", **READ[how]}, "input") == f"{first}\n{TEXT}\n{last}"


OLDER = "Straße;Größe;Preis in €\nHöhenweg 7;groß;12,50\nÄußere Gärten 3;übergroß;99,00\n"


@pytest.mark.parametrize("charset", ["cp1252", "windows-1252", "utf-16-le"])
def test_text_in_a_declared_charset_is_read(charset: str) -> None:
    data = f"data:text/csv;charset={charset};base64,{b64(OLDER.encode(charset))}"
    assert OLDER in file_text({"file_data": data}, "f")


@pytest.mark.parametrize("charset", ["", "no-such", "base64", "punycode", "\0"])
def test_an_undeclared_charset_is_not_guessed(charset: str) -> None:
    kind = f"text/csv;charset={charset}" if charset else "text/csv"
    with pytest.raises(InvalidRequest, match="of type text/csv"):
        file_text({"file_data": f"data:{kind};base64,{b64(OLDER.encode('cp1252'))}"}, "f")


@pytest.mark.parametrize("seed", range(30))
def test_binary_files_are_not_read(seed: int) -> None:
    with pytest.raises(InvalidRequest, match="is binary"):
        file_text({"file_data": b64(random.Random(seed).randbytes(300))}, "f")


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"file_data": b64(PDF), "filename": "a.pdf"}, "", "the file 'a.pdf' cannot be read. This PDF"),
    ({"file_data": "%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\n"}, "", "cannot be read. This PDF"),
    ({"file_data": f"data:image/png;base64,{b64(b'a' + bytes(3))}"}, "", "of type image/png"),
    ({"file_id": "file-1", "filename": "a.txt"}, ".file_id", "there is no file 'file-1'"),
    ({"file_url": "http://127.0.0.1/b.pdf"}, "", "is not on the public Internet"),
    ({"file_url": "ftp://a.example/b.pdf"}, ".file_url", "must be an address with http"),
    ({"file_data": 7, "file_url": [], "filename": {}}, ".file_data", "the part has no file"),
]


@pytest.mark.parametrize(("part", "at", "why"), REFUSED)
async def test_an_unreadable_file_is_refused_by_both_apis(part: dict[str, Any], at: str, why: str) -> None:
    items = [{"role": "user", "content": [{"type": "input_file", **part}]}]
    with pytest.raises(ApiError, match=why) as refused:
        await Asking(FINAL).prompt(input=items)
    assert refused.value.param == f"input[0].content[0]{at}"
    with pytest.raises(ApiError, match=why):
        await prompt_of(messages=[{"role": "user", "content": [{"type": "file", "file": part}]}])


def test_an_empty_file_and_one_that_only_claims_to_be_base64_are_text() -> None:
    assert file_text({"file_data": "data:"}, "f").count("\n") == 2
    assert "\n!!\n" in file_text({"file_data": "data:text/plain;base64,!!"}, "f")


def test_parts_of_both_apis_are_read() -> None:
    file = {"filename": "a.txt", "file_data": b64(b"hi")}
    parts = [
        {"type": "input_text", "text": "Look:"},
        {"type": "input_file", **file},
        {"type": "file", "file": file},
        {"type": "input_image", "image_url": "data:image/png;base64,AAAA"},
        {"type": "computer_screenshot", "image_url": "https://a.example/a.png"},
    ]
    text = text_of(parts, "input")
    read = "[The file named 'a.txt' that was attached here:]\nhi\n[The end of the file named 'a.txt'.]"
    assert text.startswith(f"Look:\n{read}\n{read}\n[An image")
    assert "[A screenshot" in text


def said(*parts: object) -> dict[str, Any]:
    return {"role": "user", "content": [*parts]}


CALLED = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
SPOKEN = {"type": "text", "text": "Look:"}
SEEN = {"type": "input_image", "image_url": "data:image/png;base64,AAAA"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": [SEEN]}
IN_CHAT = said("Look:", {"type": "image_url", "image_url": {}})
WITH_IMAGES: list[tuple[str, dict[str, Any], str]] = [
    ("responses", {"input": [said(SEEN)]}, "input[0].content[0]"),
    ("responses", {"input": [{"type": "image_generation_call", "result": ""}]}, "input[0]"),
    ("responses/input_tokens", {"input": said(SEEN)}, "input.content[0]"),
    ("responses", {"input": [CALLED, RESULT]}, "input[1].output[0]"),
    ("conversations", {"items": [said(SEEN)]}, "items[0].content[0]"),
    ("chat/completions", {"messages": [IN_CHAT]}, "messages[0].content[1]"),
    ("messages", {"max_tokens": 9, "messages": [said(SPOKEN, {"type": "image"})]}, "messages[0].content[1]"),
]


@pytest.mark.parametrize("images", ["note", "refuse"])
def test_an_image_is_a_note_to_the_model_or_refused_by_every_api(images: str) -> None:
    settings = Settings(images=images, served_model_name=("*",))
    with serving(scripted(FINAL.format("It is red."), loop=True), settings) as url:
        for path, body, where in WITH_IMAGES:
            answer = httpx.post(f"{url}/{path}", json={"model": "any", **body})
            if images == "note":
                assert answer.status_code == 200, answer.text
                continue
            assert answer.status_code == 400, path
            assert f"`{where}" in answer.json()["error"]["message"]
            assert "cannot see images" in answer.json()["error"]["message"]


def test_biases_are_read_by_token_id() -> None:
    assert logit_bias({"5": 2, "7": -100}, VOCABULARY_SIZE) == {5: 2.0, 7: -100.0}


@pytest.mark.parametrize(
    ("given", "param"),
    [
        ({"201088": 1}, "logit_bias.201088"),
        ({"5": "much"}, "logit_bias.5"),
        ({"5": 101}, "logit_bias.5"),
        ({"5": True}, "logit_bias.5"),
        ({"": 1}, "logit_bias."),
        ({"Hello": 1}, "logit_bias.Hello"),
    ],
)
def test_an_error_names_the_entry(given: Any, param: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        logit_bias(given, VOCABULARY_SIZE)
    assert refused.value.param == param
