"""Bodies of the containers API in an encoding that is not read are refused, not stored as they are."""

from __future__ import annotations

import gzip

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis.api_client import Api
from tests.doubles.serving import scripted

FORM = (
    b'--b\r\ncontent-disposition: form-data; name="file"; filename="a.txt"\r\n%s\r\n\r\naGVsbG8=\r\n--b--\r\n'
)


def client() -> httpx.AsyncClient:
    return Api(scripted("<|return|>"), Settings(python="off", browser="off")).client


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/containers", "application/json"),
        ("/containers/cntr_1/files", "application/json"),
        ("/containers/cntr_1/files", "multipart/form-data; boundary=b"),
    ],
)
async def test_a_compressed_body_is_refused(path: str, kind: str) -> None:
    body = gzip.compress(b'{"name": "a.txt", "content_base64": "aGVsbG8="}')
    answer = await client().post(
        path, content=body, headers={"content-type": kind, "content-encoding": "gzip"}
    )
    assert answer.status_code == 400
    assert "content-encoding 'gzip'" in answer.json()["error"]["message"]


@pytest.mark.parametrize("header", ["Content-Transfer-Encoding: base64", "content-encoding: gzip"])
async def test_a_form_s_file_in_an_encoding_is_refused(header: str) -> None:
    kind = {"content-type": "multipart/form-data; boundary=b"}
    answer = await client().post("/containers/cntr_1/files", content=FORM % header.encode(), headers=kind)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert header.partition(":")[0].lower() in error["message"]
    assert error["param"] == "file"
