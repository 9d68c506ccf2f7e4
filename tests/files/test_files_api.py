"""Files and uploads through the official SDK, over each kind of store, and what a request can do wrong."""

import hashlib
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import certifi
import httpx
import openai
import pytest

from gpt_oss_server.errors import StoreUnavailable
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.stores.files import NewFile
from gpt_oss_server.stores.kinds.table import open_stores
from tests.doubles.apis.keyed import ALICE, MALLORY, client_of, key_file
from tests.doubles.clients.running import command
from tests.doubles.server_process import free_port
from tests.doubles.serving import scripted, serving
from tests.doubles.stored import known

ANSWER = "<|channel|>final<|message|>Fine.<|return|>"
CONTENT = bytes(range(256)) * 20_000


@pytest.fixture(scope="module", params=["memory", "sqlite", "folder", "bucket"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tmp_path_factory.mktemp("files")
    place = "memory" if request.param == "memory" else f"sqlite:{path}/store"
    files = str(path / "content") if request.param == "folder" else None
    with ExitStack() as stack:
        if request.param == "bucket":
            files = stack.enter_context(s3_bucket())
        settings = Settings(store=place, files=files, file_max_bytes=8 * 2**20)
        yield stack.enter_context(serving(scripted(ANSWER), settings))


@contextmanager
def s3_bucket() -> Iterator[str]:
    """A bucket on an S3 server of its own. The environment names it, as it does for AWS's tools."""
    port = free_port()
    program = [command("moto_server", "s3"), "-p", str(port)]
    with (
        pytest.MonkeyPatch.context() as patch,
        subprocess.Popen(program, stderr=subprocess.DEVNULL) as server,
    ):
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "test")
        patch.setenv("AWS_REGION", "us-east-1")
        patch.setenv("SSL_CERT_FILE", certifi.where())  # its client starts only with authorities to trust
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        try:
            made = httpx.Client(transport=httpx.HTTPTransport(retries=8))
            made.put(f"http://127.0.0.1:{port}/shop").raise_for_status()
            yield "s3://shop/of/files/"
        finally:
            server.kill()


def test_a_file_is_created_listed_read_and_deleted(client: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "tides ä.bin"
    path.write_bytes(CONTENT)
    expires: Any = {"anchor": "created_at", "seconds": 3_600}
    made = client.files.create(file=path, purpose="user_data", expires_after=expires)
    assert (made.filename, made.bytes, made.status) == ("tides ä.bin", len(CONTENT), "processed")
    assert made.expires_at == made.created_at + 3_600
    assert client.files.retrieve(made.id) == made
    assert client.files.wait_for_processing(made.id) == made
    answer = client.files.content(made.id)
    assert answer.read() == CONTENT
    assert answer.response.headers["content-disposition"].startswith("attachment;")
    batch = client.files.create(file=("b.jsonl", b"{}\n"), purpose="batch")
    assert batch.expires_at == batch.created_at + 30 * 86_400
    assert [file.id for file in client.files.list(limit=1)] == [batch.id, made.id]
    assert [file.id for file in client.files.list(purpose="batch")] == [batch.id]
    for file in (made, batch):
        assert client.files.delete(file.id).deleted
    assert not client.files.list().data
    with pytest.raises(openai.NotFoundError, match="has expired, or was deleted") as missing:
        client.files.content(made.id)
    assert missing.value.code == "file_not_found"


def test_a_file_is_uploaded_in_parts(client: openai.OpenAI, tmp_path: Path) -> None:
    path = tmp_path / "large.bin"
    path.write_bytes(CONTENT)
    asked: Any = {"mime_type": "application/pdf", "purpose": "assistants", "part_size": 2_000_000}
    upload = client.uploads.upload_file_chunked(file=path, **asked, md5=hashlib.md5(CONTENT).hexdigest())
    assert upload.status == "completed"
    file = known(upload.file).id
    assert client.files.content(file).read() == CONTENT
    with pytest.raises(openai.BadRequestError, match="is completed"):
        client.uploads.cancel(upload.id)
    client.files.delete(file)


def begun(client: openai.OpenAI, size: int) -> str:
    return client.uploads.create(bytes=size, filename="a", mime_type="text/plain", purpose="batch").id


def test_an_upload_that_is_not_what_it_announced_is_refused(client: openai.OpenAI) -> None:
    upload = begun(client, 4)
    first, second = (client.uploads.parts.create(upload, data=data).id for data in (b"ab", b"cd"))
    for ids, md5, why in (
        ([first], None, "have 2 bytes, but the upload was created for 4"),
        ([first, first], None, "names a part twice"),
        ([first, "part_x"], None, "has no part"),
        ([second, first], hashlib.md5(b"abcd").hexdigest(), "The MD5 of the parts is"),
    ):
        with pytest.raises(openai.BadRequestError, match=why):
            client.uploads.complete(upload, part_ids=ids, md5=md5 or openai.omit)
    file = known(client.uploads.complete(upload, part_ids=[first, second]).file).id
    assert client.files.content(file).read() == b"abcd"
    client.files.delete(file)
    assert client.uploads.cancel(begun(client, 1)).status == "cancelled"
    with pytest.raises(openai.APIStatusError, match="may have 8,388,608 bytes at most") as refused:
        begun(client, 9 * 2**20)
    assert refused.value.status_code == 413


FILE = {"file": ("a.txt", b"abc")}
NEVER = {"expires_after[anchor]": "created_at"}


@pytest.mark.parametrize(
    ("fields", "files", "status", "param"),
    [
        ({"purpose": "batch"}, {"other": ("a.txt", b"abc")}, 400, "file"),
        ({"purpose": "batch"}, {"file": ("", b"abc")}, 400, "file"),
        ({}, FILE, 400, "purpose"),
        ({"purpose": "fun"}, FILE, 400, "purpose"),
        ({"purpose": "batch", **NEVER}, FILE, 400, "expires_after.seconds"),
        ({"purpose": "batch", **NEVER, "expires_after[seconds]": "9"}, FILE, 400, "expires_after.seconds"),
        ({"purpose": "batch", "expires_after": "9"}, FILE, 400, "expires_after"),
        ({"purpose": "batch" * 20_000}, FILE, 400, "purpose"),
        ({"purpose": "batch"}, {"file": ("a.txt", bytes(8 * 2**20 + 1))}, 413, "file"),
    ],
)
def test_a_form_that_makes_no_file_says_why(
    url: str, client: openai.OpenAI, fields: dict[str, str], files: Any, status: int, param: str
) -> None:
    answer = httpx.post(f"{url}/files", data=fields, files=files)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param), answer.text
    assert not client.files.list().data


def test_the_fields_may_follow_the_file(url: str, client: openai.OpenAI) -> None:
    form = b""
    for disposition, value in ((b'file"; filename="../../etc/passwd', b"abc"), (b"purpose", b"batch")):
        head = b'--x\r\ncontent-disposition: form-data; name="' + disposition
        form += head + b'"\r\n\r\n' + value + b"\r\n"
    headers = {"content-type": "multipart/form-data; boundary=x"}
    answer = httpx.post(f"{url}/files", content=form, headers=headers)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "file")
    assert "before its last boundary" in answer.text
    made = httpx.post(f"{url}/files", content=form + b"--x--\r\n", headers=headers).json()
    assert (made["filename"], made["purpose"]) == ("../../etc/passwd", "batch")
    assert client.files.content(made["id"]).read() == b"abc"
    client.files.delete(made["id"])


def test_a_key_has_its_own_files_and_a_limit(tmp_path: Path) -> None:
    settings = Settings(api_key_file=key_file(tmp_path), key_stored_bytes=3_000_000)
    with (
        serving(scripted(ANSWER), settings) as url,
        client_of(url, ALICE) as alice,
        client_of(url, MALLORY) as mallory,
    ):
        content = {"file": ("a", bytes(2_000_000))}
        made = alice.post("/files", data={"purpose": "batch"}, files=content).json()["id"]
        assert [mallory.get(f"/files/{made}{rest}").status_code for rest in ("", "/content")] == [404, 404]
        assert mallory.delete(f"/files/{made}").status_code == 404
        assert mallory.get("/files").json()["data"] == []
        refused = alice.post("/files", data={"purpose": "batch"}, files=content)
        assert refused.status_code == 429
        assert "as many bytes as they may (3,000,000)" in refused.text
        assert mallory.post("/files", data={"purpose": "batch"}, files=content).status_code == 200
        assert alice.delete(f"/files/{made}").status_code == 200
        assert alice.post("/files", data={"purpose": "batch"}, files=content).status_code == 200


async def pieces(content: bytes) -> AsyncIterator[bytes]:
    yield content


async def test_a_bucket_holds_what_the_store_knows_and_nothing_else(tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path}/store"
    with s3_bucket() as bucket:
        for wrong in ("s3://other/x", "s3:///x"):
            with pytest.raises(SettingsError, match=f"--files {wrong}\\S* cannot be used."):
                open_stores(Settings(store=place, files=wrong))
        stores = open_stores(Settings(store=place, files=bucket))
        new = NewFile("file_1", "a.txt", "user_data", 0)
        await stores.files.create(new, pieces(CONTENT))
        await stores.files.sweep()
        assert b"".join([piece async for piece in stores.files.read("file_1", 5)]) == CONTENT[5:]
        objects: Any = stores.files._folder
        [kept] = objects.names()
        objects.append("stray", 0, b"of a file whose deletion was interrupted")
        await stores.close()
        again = open_stores(Settings(store=place, files=bucket))
        await again.files.sweep()
        assert objects.names() == [kept]
        await again.files.delete("file_1")
        assert objects.names() == []
    with pytest.raises(StoreUnavailable, match="The bucket of --files does not answer"):
        await again.files.create(new, pieces(CONTENT))
    await again.close()


async def test_a_folder_holds_what_the_store_knows_and_nothing_else(tmp_path: Path) -> None:
    place = f"sqlite:{tmp_path}/store"
    settings = Settings(files=str(tmp_path / "content"))
    with pytest.raises(SettingsError, match="--files needs a store that outlives the server"):
        open_stores(settings)
    for _ in range(2):  # the second start finds what a crash has left
        stores = open_stores(replace(settings, store=place))
        [folder] = (tmp_path / "content").iterdir()
        await stores.files.sweep()
        assert list(folder.iterdir()) == []
        (folder / "file_stray").write_bytes(b"of a file whose deletion was interrupted")
        await stores.close()
