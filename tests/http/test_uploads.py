"""A file's upload is read by the reader of every body."""

from __future__ import annotations

import pytest
from starlette.requests import Request
from starlette.types import Message

from gpt_oss_server.errors import BodyTooLarge, InvalidRequest
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.uploads import read_upload

BODY = b'{"name": "data.csv", "content_base64": "YSxi"}'


def request(**headers: str) -> Request:
    async def receive() -> Message:
        return {"type": "http.request", "body": BODY, "more_body": False}

    given = {"content-type": "application/json", **headers}
    raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in given.items()]
    return Request({"type": "http", "headers": raw}, receive)


async def test_a_file_is_read() -> None:
    assert await read_upload(request(), 1_000) == ("data.csv", b"a,b")
    assert await read_upload(request(content_encoding="identity"), 1_000) == ("data.csv", b"a,b")


async def test_a_compressed_upload_is_refused_as_every_compressed_body_is() -> None:
    with pytest.raises(InvalidRequest, match="content-encoding 'gzip'") as refused:
        await read_upload(request(content_encoding="gzip"), 1_000)
    with pytest.raises(InvalidRequest) as elsewhere:
        await read_json(request(content_encoding="gzip"), 1_000)
    assert refused.value.message == elsewhere.value.message


async def test_an_upload_that_is_too_large_says_what_to_send() -> None:
    with pytest.raises(BodyTooLarge, match=r"larger than 10 bytes\. Send a smaller file\."):
        await read_upload(request(), 10)
