"""Files in prompts: by id, as data and from an address, in each API; what cannot be read says why."""

import base64
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pypdf
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.documents import bomb, docx_of, pptx_of, xlsx_of
from tests.doubles.tools.web_servers import pdf

ANSWER = "<|channel|>final<|message|>Fine.<|return|>"


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(scripted(ANSWER), Settings(allow_private_hosts=True, served_model_name=("x",))) as base:
        yield base


def prompt(url: str, *parts: Any, **body: Any) -> httpx.Response:
    items = [{"role": "user", "content": list(parts)}]
    return httpx.post(url.removesuffix("/v1") + "/render", json={"input": items, **body}, timeout=60)


def uploaded(client: openai.OpenAI, name: str, content: bytes) -> str:
    return client.files.create(file=(name, content), purpose="user_data").id


KINDS: list[tuple[str, bytes, str]] = [
    ("a.md", b"# Tides\n\nHigh *water*", "High *water*"),
    ("a.html", b"<p>High <a href='https://a.example'>water</a></p>", "High water"),
    ("a.csv", b"hour,height\n3,4.1\n", "3,4.1"),
    ("a.json", b'{"hour": 3}', '{"hour": 3}'),
    ("a.py", b"def tide():\n    return 3\n", "    return 3"),
    ("a.ts", "// grün, größer, wärmer".encode("latin-1"), "// grün, größer"),
    ("a.pdf", pdf("Low water", "High water"), "# Page 2\n\nHigh water"),
    ("a.docx", docx_of("High water"), "## Tides\n\nHigh water\n\nhour | height"),
    ("a.pptx", pptx_of("Low water", "High water"), "# Slide 2\n\nHigh water\nSay: High water"),
    ("a.xlsx", xlsx_of(("hour", "height"), (3, 4.1)), "# Sheet Sheet\n\nhour | height\n3 | 4.1"),
]


@pytest.mark.parametrize(("name", "content", "text"), KINDS, ids=[kind[0] for kind in KINDS])
def test_a_file_is_read_by_its_id_and_as_data(
    url: str, client: openai.OpenAI, name: str, content: bytes, text: str
) -> None:
    by_id = prompt(url, {"type": "input_file", "file_id": uploaded(client, name, content)})
    assert by_id.status_code == 200, by_id.text
    assert f"[The file named '{name}' that was attached here:]" in by_id.json()["text"]
    assert text in by_id.json()["text"]
    if name.endswith(("html", "ts")):  # as data, text is taken as it is
        return
    data = "data:application/octet-stream;base64," + base64.b64encode(content).decode()
    given = prompt(url, {"type": "input_file", "filename": name, "file_data": data})
    assert text in given.json()["text"]


def encrypted() -> bytes:
    writer, file = pypdf.PdfWriter(clone_from=io.BytesIO(pdf("secret"))), io.BytesIO()
    writer.encrypt("password")
    writer.write(file)
    return file.getvalue()


BAD: list[tuple[str, Callable[[], bytes], str]] = [
    ("bomb.docx", lambda: bomb(300 * 2**20), "unpacks to more than 256,000,000 bytes"),
    ("inner.docx", lambda: bomb(200 * 2**20), "could not be read"),
    ("cut.docx", lambda: docx_of("High water")[:-400], "damaged or cut off"),
    ("old.doc", lambda: b"\xd0\xcf\x11\xe0" + bytes(600), "encrypted, or older than DOCX"),
    ("a.zip", lambda: b"PK\x03\x04" + bytes(30), "damaged or cut off"),
    ("empty.pptx", pptx_of, "holds no text"),
    ("cut.pdf", lambda: pdf("High water")[:200], "PDF could not be read"),
    ("locked.pdf", encrypted, "encrypted with a password"),
    ("scan.pdf", lambda: pdf(""), "holds no text, only images"),
    ("a.png", lambda: b"\x89PNG\r\n\x1a\n" + bytes(30), "its content is binary"),
]


@pytest.mark.parametrize(("name", "content", "why"), BAD, ids=[bad[0] for bad in BAD])
def test_a_file_that_cannot_be_read_says_why(
    url: str, client: openai.OpenAI, name: str, content: Callable[[], bytes], why: str
) -> None:
    answer = prompt(url, "Hi", {"type": "input_file", "file_id": uploaded(client, name, content())})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"]) == (400, "input[0].content[1]")
    assert f"the file '{name}' cannot be read" in error["message"]
    assert why in error["message"]


def test_a_pdf_of_10_000_pages_is_read_in_part_and_says_so(url: str, client: openai.OpenAI) -> None:
    file = uploaded(client, "long.pdf", pdf(*(f"p{number}" for number in range(10_000))))
    text = prompt(url, {"type": "input_file", "file_id": file}, truncation="auto").json()["text"]
    assert "# Page 1000\n\np999" in text
    assert "[Only the first 1000 of 10000 pages were read.]" in text


def test_each_api_reads_files(url: str, client: openai.OpenAI) -> None:
    file = uploaded(client, "tides.pdf", pdf("High water at three"))
    data = "data:text/plain;base64," + base64.b64encode(b"The answer is 42.").decode()
    files = [{"file_id": file}, {"filename": "a.txt", "file_data": data}]
    messages: Any = [{"role": "user", "content": [{"type": "file", "file": each} for each in files]}]
    rendered = httpx.post(url.removesuffix("/v1") + "/render", json={"messages": messages}).json()["text"]
    assert "High water at three" in rendered
    assert "The answer is 42." in rendered
    assert client.chat.completions.create(model="x", messages=messages).choices[0].message.content == "Fine."
    source: Any = {"type": "file", "file_id": file}
    document: Any = {"type": "document", "title": "Tides", "source": source}
    asked: Any = [{"role": "user", "content": [document]}]
    with anthropic.Anthropic(base_url=url.removesuffix("/v1"), api_key="none", max_retries=0) as claude:
        assert claude.messages.count_tokens(model="x", messages=asked).input_tokens > 20
        source["file_id"] = "file_x"
        with pytest.raises(anthropic.NotFoundError, match="there is no file 'file_x'"):
            claude.messages.create(model="x", max_tokens=9, messages=asked)


def test_a_conversation_keeps_what_was_read_after_the_file_is_deleted(
    url: str, client: openai.OpenAI
) -> None:
    file = uploaded(client, "tides.docx", docx_of("High water at three"))
    content: Any = [{"type": "input_file", "file_id": file}]
    held = client.conversations.create(items=[{"role": "user", "content": content}])
    first: Any = client.responses.create(model="x", input=[{"role": "user", "content": content}])
    client.files.delete(file)
    for past in ({"conversation": held.id}, {"previous_response_id": first.id}):
        rendered = httpx.post(url.removesuffix("/v1") + "/render", json={"input": "When?", **past})
        assert "High water at three" in rendered.json()["text"]
    with pytest.raises(openai.NotFoundError, match=r"`input\[0\]\.content\[0\]\.file_id`: there is no file"):
        client.responses.create(model="x", input=[{"role": "user", "content": content}])


def test_a_file_is_fetched_from_its_address(url: str, client: openai.OpenAI, tmp_path: Path) -> None:
    file = uploaded(client, "a.pdf", pdf("Of an address"))
    answer = prompt(url, {"type": "input_file", "file_url": f"{url}/files/{file}/content"})
    assert "Of an address" in answer.json()["text"]
    with serving(scripted(ANSWER)) as guarded:
        refused = prompt(guarded, {"type": "input_file", "file_url": f"{url}/files/{file}/content"})
    assert refused.status_code == 400
    assert "is not on the public Internet" in refused.text
