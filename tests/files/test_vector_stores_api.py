"""Vector stores through the official SDK's own flows, and what a request can do wrong."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest

from gpt_oss_server.apis.vector_stores.ingestion import passages
from gpt_oss_server.settings import Settings
from tests.doubles.apis.keyed import ALICE, MALLORY, client_of, key_file
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.documents import bomb, docx_of
from tests.doubles.tools.web_servers import pdf

ANSWER = "<|channel|>final<|message|>Fine.<|return|>"
LONG = "\n".join(f"Line {number} of the harbour's rules: keep to the right." for number in range(2_000))


@pytest.fixture(scope="module", params=["memory", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    place = "memory" if request.param == "memory" else f"sqlite:{tmp_path_factory.mktemp('vs')}/store"
    with serving(scripted(ANSWER), Settings(store=place)) as base:
        yield base


def uploaded(client: openai.OpenAI, name: str, content: bytes) -> str:
    return client.files.create(file=(name, content), purpose="assistants").id


def test_a_file_is_attached_searched_and_detached(client: openai.OpenAI) -> None:
    store = client.vector_stores.create(name="Harbour", metadata={"team": "pilots"})
    assert (store.status, store.file_counts.total, store.usage_bytes) == ("completed", 0, 0)
    tides = uploaded(client, "tides.pdf", pdf("Low water is at nine.", "High water is at three."))
    attributes: Any = {"year": 2026, "lang": "en"}
    polled: Any = {"vector_store_id": store.id, "poll_interval_ms": 20}
    file = client.vector_stores.files.create_and_poll(tides, attributes=attributes, **polled)
    assert (file.status, file.last_error, file.attributes) == ("completed", None, attributes)
    rules = client.vector_stores.files.upload_and_poll(file=("rules.md", LONG.encode()), **polled)
    assert client.vector_stores.retrieve(store.id).file_counts.completed == 2
    content = client.vector_stores.files.content(rules.id, vector_store_id=store.id)
    assert content.data[0].text == LONG
    found = client.vector_stores.search(store.id, query="When is high water?", max_num_results=3).data
    assert (found[0].file_id, found[0].filename) == (tides, "tides.pdf")
    assert "# Page 2\n\nHigh water is at three." in found[0].content[0].text
    assert 0 < found[0].score < 1
    wrong: Any = {"type": "eq", "key": "year", "value": 2025}
    assert client.vector_stores.search(store.id, query="water", filters=wrong).data == []
    changed = client.vector_stores.files.update(tides, vector_store_id=store.id, attributes={"year": 2025})
    assert changed.attributes == {"year": 2025}
    assert client.vector_stores.search(store.id, query="water", filters=wrong).data[0].file_id == tides
    strict: Any = {"score_threshold": 0.99}
    assert client.vector_stores.search(store.id, query=["high", "water"], ranking_options=strict).data == []
    assert {each.id for each in client.vector_stores.files.list(store.id, limit=1)} == {tides, rules.id}
    assert client.vector_stores.files.delete(tides, vector_store_id=store.id).deleted
    client.files.delete(rules.id)  # leaves the store too
    assert client.vector_stores.files.list(store.id).data == []
    assert client.vector_stores.search(store.id, query="harbour").data == []
    assert client.vector_stores.delete(store.id).deleted
    with pytest.raises(openai.NotFoundError, match="There is no vector store"):
        client.vector_stores.retrieve(store.id)


def test_a_batch_of_files_ends_with_each_file_read_or_its_error(client: openai.OpenAI) -> None:
    store = client.vector_stores.create()
    files: Any = [("a.docx", docx_of("High water")), ("b.txt", b"Low water"), ("c.txt", b"Boats")]
    done = client.vector_stores.file_batches.upload_and_poll(store.id, files=files, poll_interval_ms=20)
    assert (done.status, done.file_counts.completed, done.file_counts.total) == ("completed", 3, 3)
    bad = [
        uploaded(client, "bomb.docx", bomb(300 * 2**20)),
        uploaded(client, "a.png", b"\x89PNG\r\n" + bytes(99)),
        uploaded(client, "long.txt", b"word " * 500_000),
        uploaded(client, "empty.txt", b""),
    ]
    done = client.vector_stores.file_batches.create_and_poll(store.id, file_ids=bad, poll_interval_ms=20)
    assert (done.status, done.file_counts.failed, done.file_counts.completed) == ("completed", 3, 1)
    failed = client.vector_stores.file_batches.list_files(done.id, vector_store_id=store.id, filter="failed")
    errors = {file.id: file.last_error for file in failed}
    codes = [error.code if (error := errors.get(file)) else None for file in bad]
    assert codes == ["unsupported_file", "unsupported_file", "invalid_file", None]
    assert "Split the file" in str(errors[bad[2]])
    assert [hit.filename for hit in client.vector_stores.search(store.id, query="high").data] == ["a.docx"]
    cancelled = client.vector_stores.file_batches.cancel(done.id, vector_store_id=store.id)
    assert cancelled.status == "completed"
    client.vector_stores.delete(store.id)


def test_a_store_is_changed_and_listed(client: openai.OpenAI) -> None:
    expires: Any = {"anchor": "last_active_at", "days": 2}
    stores = [client.vector_stores.create(name=str(number), expires_after=expires) for number in range(3)]
    assert stores[0].expires_at == stores[0].last_active_at + 2 * 86_400  # type: ignore[operator]
    assert [store.name for store in client.vector_stores.list(limit=2)] == ["2", "1", "0"]
    changed = client.vector_stores.update(stores[0].id, name="new", expires_after=None, metadata={"a": "b"})
    assert (changed.name, changed.expires_at, changed.metadata) == ("new", None, {"a": "b"})
    for store in stores:
        client.vector_stores.delete(store.id)


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("", {"file_ids": ["file_x"]}, "file_id"),
        ("", {"expires_after": {"anchor": "last_active_at", "days": 900}}, "expires_after.days"),
        ("/{}/search", {}, "query"),
        ("/{}/search", {"query": ["a"] * 17}, "query"),
        ("/{}/search", {"query": "a" * 16_385}, "query"),
        ("/{}/search", {"query": "a", "max_num_results": 51}, "max_num_results"),
        ("/{}/search", {"query": "a", "rewrite_query": True}, "rewrite_query"),
        ("/{}/search", {"query": "a", "filters": {"type": "like", "key": "a", "value": "b"}}, "filters"),
        ("/{}/search", {"query": "a", "filters": {"type": "gt", "key": "a", "value": "b"}}, "filters.value"),
        ("/{}/search", {"query": "a", "filters": {"type": "and", "filters": []}}, "filters.filters"),
        ("/{}/files", {"file_id": "file_x", "attributes": {"a": [1]}}, "file_id"),
        ("/{}/file_batches", {"file_ids": []}, "file_ids"),
        ("/{}/file_batches", {"file_ids": ["x"] * 2_001}, "file_ids"),
    ],
)
def test_a_wrong_request_names_its_field(
    url: str, client: openai.OpenAI, path: str, body: dict[str, Any], param: str
) -> None:
    store = client.vector_stores.create()
    answer = httpx.post(f"{url}/vector_stores{path.format(store.id)}", json=body)
    assert answer.status_code in (400, 404), answer.text
    assert answer.json()["error"]["param"] == param
    client.vector_stores.delete(store.id)


def test_a_deep_filter_is_refused(url: str, client: openai.OpenAI) -> None:
    store = client.vector_stores.create()
    filters: Any = {"type": "eq", "key": "a", "value": 1}
    for _ in range(9):
        filters = {"type": "and", "filters": [filters]}
    with pytest.raises(openai.BadRequestError, match="5 levels deep"):
        client.vector_stores.search(store.id, query="a", filters=filters)


def test_a_key_sees_its_own_stores_and_may_not_attach_files_of_others(tmp_path: Any) -> None:
    with (
        serving(scripted(ANSWER), Settings(api_key_file=key_file(tmp_path))) as url,
        client_of(url, ALICE) as alice,
        client_of(url, MALLORY) as mallory,
    ):
        form = {"data": {"purpose": "assistants"}, "files": {"file": ("a.txt", b"secret")}}
        file = alice.post("/files", **form).json()["id"]  # type: ignore[arg-type]
        store = alice.post("/vector_stores", json={"file_ids": [file]}).json()["id"]
        own = mallory.post("/vector_stores", json={}).json()["id"]
        assert mallory.post(f"/vector_stores/{own}/files", json={"file_id": file}).status_code == 404
        for path in ("", "/files", f"/files/{file}", f"/files/{file}/content"):
            assert mallory.get(f"/vector_stores/{store}{path}").status_code == 404
        assert mallory.post(f"/vector_stores/{store}/search", json={"query": "secret"}).status_code == 404
        assert mallory.delete(f"/vector_stores/{store}").status_code == 404
        assert len(mallory.get("/vector_stores").json()["data"]) == 1


@pytest.mark.parametrize(("size", "overlap"), [(100, 0), (100, 50), (800, 400), (4_096, 1)])
@pytest.mark.parametrize("text", [LONG, "x" * 10_000, "東京の港" * 2_000, "a", ""], ids=len)
def test_passages_cover_a_text_and_overlap(text: str, size: int, overlap: int) -> None:
    cut = list(passages(text, size, overlap))
    assert all(text.startswith(part.text, part.start) for part in cut)
    assert all(len(part.text.encode()) <= 4 * size + 4 for part in cut)
    ends = [0, *(part.start + len(part.text) for part in cut)]
    assert ends[-1] == len(text)
    for part, end in zip(cut, ends, strict=False):
        assert part.start <= end
        if overlap and part.start:
            assert 0.5 * overlap < len(text[part.start : end].encode()) / 4 <= 1.5 * overlap + 100
