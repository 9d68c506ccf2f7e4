"""Files in forms: their names, and what is explained. Hostile forms: tests/properties/test_linear_time.py."""

import gzip

import pytest
from starlette.requests import Request
from starlette.types import Message

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.uploads import read_upload

BODY = b'{"file_id": "file-1"}'


def request(body: bytes = BODY, **headers: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    named = {name.replace("_", "-"): value for name, value in headers.items()}
    raw = [
        (name.encode(), value.encode())
        for name, value in {"content-type": "application/json", **named}.items()
    ]
    return Request({"type": "http", "headers": raw}, receive)


FORM = "multipart/form-data; boundary=x"


def form(disposition: bytes, content: bytes = b"a,b", before: bytes = b"") -> bytes:
    head = b"Content-Disposition: " + disposition + b"\r\n\r\n"
    return before + b"--x\r\n" + head + content + b"\r\n--x--\r\n"


@pytest.mark.parametrize(
    ("disposition", "name"),
    [
        (b'form-data; name="file"; filename="data.csv"', "data.csv"),
        (b"form-data;name=file;filename=data.csv", "data.csv"),
        ('form-data; name="file"; filename="tides ä; 1.csv"'.encode(), "tides ä; 1.csv"),
        (b'form-data; name="file"; filename="a\\"b\\\\c"', 'a"b\\c'),
        (b"form-data; name=file; filename=x; filename*=UTF-8''tides%20%C3%A4.csv", "tides ä.csv"),
        (b"form-data; name=file; filename*=no-such-set'de'a%20b", "a b"),
    ],
)
async def test_the_name_of_a_file_in_a_form(disposition: bytes, name: str) -> None:
    field = form(b"form-data; name=purpose", b"assistants").removesuffix(b"--x--\r\n")
    sent = request(form(disposition, before=field), content_type=FORM)
    assert await read_upload(sent, 10_000) == (name, b"a,b")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (form(b'form-data; name="file"' + b";" * 9_000), "more than 8,192 bytes of headers"),
        (b"--x\r\n\r\n\r\n" * 200, "more than 100 parts"),
        (form(b"form-data; name=other; filename=a"), "no field `file`"),
    ],
    ids=["a long head", "many parts", "no file"],
)
async def test_a_form_without_a_file_is_explained(body: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why):
        await read_upload(request(body, content_type=FORM), 1_000_000)


@pytest.mark.parametrize("header", [b"Content-Transfer-Encoding: base64", b"content-encoding: gzip"])
async def test_a_file_in_an_encoding_is_refused(header: bytes) -> None:
    body = form(b"form-data; name=file; filename=a\r\n" + header)
    with pytest.raises(InvalidRequest, match="is not decoded") as refused:
        await read_upload(request(body, content_type=FORM), 1_000)
    assert header.partition(b":")[0].decode().lower() in refused.value.message
    assert refused.value.param == "file"


@pytest.mark.parametrize("kind", ["application/json", FORM])
async def test_a_compressed_upload_is_refused(kind: str) -> None:
    with pytest.raises(InvalidRequest, match="content-encoding 'gzip'"):
        await read_upload(request(gzip.compress(BODY), content_type=kind, content_encoding="gzip"), 1_000)
