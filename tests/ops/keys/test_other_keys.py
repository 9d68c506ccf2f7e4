"""An attacker with a key of its own, at all that another has made: answered as for ids that never existed."""

import json
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings
from tests.doubles.apis import keyed
from tests.doubles.apis.keyed import ALICE, MALLORY, Made, ask, client_of, key_file, socket_of
from tests.doubles.postgres import running_postgres
from tests.doubles.serving import scripted, serving
from tests.tools.python.conftest import needs_bubblewrap

BODY_OF_ITEMS = {"items": [{"type": "message", "role": "user", "content": "Mine now"}]}
REFERENCE = {"type": "item_reference"}
Request = tuple[str, str, Any]  # method, path, body


def requests_with(one: str, container: str, file: str) -> Iterator[Request]:
    kinds = ("responses", "conversations", "chat/completions")
    response, conversation, completion = (f"/{kind}/{one}" for kind in kinds)
    reads = ("", "?stream=true", "?stream=true&starting_after=0", "/input_items", "/trace")
    for path in (
        *(response + more for more in (*reads, "/trace?conversation=true")),
        *(conversation + more for more in ("", "/items", f"/items/{one}")),
        *(completion, f"{completion}/messages", f"/chat/completions?after={one}"),
        *(f"/containers/{one}", f"/containers/{one}/files"),
        *(f"/containers/{container}/files/{file}", f"/containers/{container}/files/{file}/content"),
    ):
        yield "GET", path, None
    yield "POST", f"{response}/cancel", None
    yield "POST", conversation, {"metadata": {"taken": "yes"}}
    yield "POST", f"{conversation}/items", BODY_OF_ITEMS
    yield "POST", completion, {"metadata": {"taken": "yes"}}
    yield "POST", f"/containers/{one}/files", {"file_id": one}
    for path in ("/responses", "/responses/compact", "/responses/input_tokens", "/../render"):
        yield "POST", path, {"input": "Hi", "previous_response_id": one}
        yield "POST", path, {"input": "Hi", "conversation": one}
        yield "POST", path, {"input": [{**REFERENCE, "id": one}]}
    yield "POST", "/responses", {"input": "Hi", "previous_response_id": one, "background": True}
    yield "POST", "/responses", {"input": "Hi", "previous_response_id": one, "stream": True}
    yield "POST", "/responses", {"input": "Hi", "conversation": {"id": one}, "stream": True}
    yield "POST", "/responses", {"input": [{"id": one}, {"role": "user", "content": "Hi"}]}
    approval = {"type": "mcp_approval_response", "approval_request_id": one, "approve": True}
    yield "POST", "/responses", {"input": [approval]}
    for tool in ({"container": one}, {"container": {"type": "auto", "file_ids": [one]}}):
        yield "POST", "/responses", {"input": "Hi", "tools": [{"type": "code_interpreter", **tool}]}
    of_container = (f"/containers/{container}/files/{file}", f"/containers/{one}")
    for path in (response, f"{conversation}/items/{one}", conversation, completion, *of_container):
        yield "DELETE", path, None


def unknown_like(one: str) -> str:
    prefix, mark, rest = re.split(r"([_-])", one, maxsplit=1)
    return prefix + mark + secrets.token_hex(len(rest))[: len(rest)]


def answer_to(client: httpx.Client, request: Request) -> tuple[int, str, dict[str, str]]:
    method, path, body = request
    url = str(client.base_url).rstrip("/") + path
    answer = client.request(method, url.replace("/v1/../", "/"), json=body)
    varying = ("x-request-id", "date", "x-ratelimit-remaining-requests", "x-ratelimit-reset-requests")
    headers = {name: value for name, value in answer.headers.items() if name not in varying}
    return answer.status_code, answer.text, headers


def attempts(made: Made) -> Iterator[tuple[Request, Request, list[tuple[str, str]]]]:
    """Each attempt, the same with unknown ids, and which id stands for which."""
    container, file = (made.files or [("cntr_" + "0" * 32, "cfile_" + "0" * 32)])[0]
    for one in made.all:
        news = {each: unknown_like(each) for each in (one, container, file)}
        unknown = requests_with(news[one], news[container], news[file])
        for pair in zip(requests_with(one, container, file), unknown, strict=True):
            yield *pair, list(news.items())


def neutral(text: str, ids: list[tuple[str, str]]) -> str:
    for pair in ids:
        for one in pair:
            text = text.replace(one, "ID")
    return text


def check_attempts(url: str, made: Made, some: slice) -> int:
    count = 0
    with client_of(url, MALLORY) as mallory:
        for request, unknown, ids in list(attempts(made))[some]:
            status, text, headers = answer_to(mallory, request)
            assert status in (400, 404), (request, status, text)
            assert "secret" not in text, (request, text)
            other_status, other_text, other_headers = answer_to(mallory, unknown)
            assert (status, neutral(text, ids)) == (other_status, neutral(other_text, ids)), request
            assert headers == other_headers, request
            count += 1
    return count


def check_sockets(url: str, made: Made) -> int:
    """Also at what only a connection keeps: responses with `store: false`."""
    count = 0
    with socket_of(url, ALICE) as hers, socket_of(url, MALLORY) as his:
        unstored = ask(hers, store=False)["response"]
        for one in [*made.all, unstored["id"], *(item["id"] for item in unstored["output"])]:
            new = unknown_like(one)
            for fields in ("previous_response_id", "conversation", "reference", "container"):
                answers = [ask(his, **_named(fields, each)) for each in (one, new)]
                assert [each["type"] for each in answers] == ["error", "error"], (fields, one, answers)
                mine, other = (neutral(json.dumps(each), [(one, new)]) for each in answers)
                assert mine == other, (fields, one)
                count += 1
        assert ask(hers, previous_response_id=unstored["id"])["type"] == "response.completed"
    return count


def _named(where: str, one: str) -> dict[str, Any]:
    match where:
        case "reference":
            return {"input": [{**REFERENCE, "id": one}]}
        case "container":
            return {"tools": [{"type": "code_interpreter", "container": one}]}
        case _:
            return {where: one}


def check_lists_show_nothing(url: str, made: Made) -> None:
    with client_of(url, MALLORY) as mallory:
        for path in ("/chat/completions", "/containers"):
            assert mallory.get(path).json()["data"] == []
    with client_of(url, ALICE) as alice:
        assert [each["id"] for each in alice.get("/chat/completions").json()["data"]] == made.completions


def check_the_owner_still_has_all(url: str, made: Made) -> None:
    with client_of(url, ALICE) as alice:
        for one in made.responses:
            assert alice.get(f"/responses/{one}").status_code == 200
        last = alice.get(f"/responses/{made.responses[-1]}").json()
        assert last["status"] in ("queued", "in_progress", "completed")
        for one in made.conversations:
            shown = alice.get(f"/conversations/{one}").json()
            assert shown["metadata"] == {}
            texts = alice.get(f"/conversations/{one}/items").text
            assert "My secret" in texts
            assert "Mine now" not in texts
        for container, file in made.files:
            assert alice.get(f"/containers/{container}/files/{file}/content").content == b"secret"
        for one in made.items:
            given = {"input": [{**REFERENCE, "id": one}, {"role": "user", "content": "Hi"}]}
            assert alice.post("/responses", json=given).status_code == 200
        assert alice.delete(f"/conversations/{made.conversations[0]}").status_code == 200


THIRDS = [slice(at, None, 3) for at in range(3)]
STORES = ("memory", "sqlite", "postgres")


@pytest.mark.parametrize(
    ("kind", "some"),
    [
        pytest.param(kind, third, id=f"{kind}-{at}", marks=[] if at == place else pytest.mark.proof)
        for place, kind in enumerate(STORES)
        for at, third in enumerate(THIRDS)
    ],
)
def test_another_keys_objects_are_as_if_they_did_not_exist(kind: str, some: slice, tmp_path: Path) -> None:
    if kind == "postgres":
        with running_postgres() as postgres:
            _attack(postgres.new_database(), some, tmp_path)
    else:
        _attack(kind if kind == "memory" else f"sqlite:{tmp_path / 'store.sqlite'}", some, tmp_path)


def _attack(store: str, some: slice, folder: Path) -> None:
    needs_bubblewrap()
    settings = Settings(store=store, api_key_file=key_file(folder), python="bubblewrap", browser="off")
    with serving(scripted(*keyed.SCRIPT, tokens_per_second=keyed.SPEED), settings) as url:
        with client_of(url, ALICE) as alice:
            made = keyed.make_everything(alice, python=True)
        count = check_attempts(url, made, some) + check_sockets(url, made)
        assert count > 200
        check_lists_show_nothing(url, made)
        check_the_owner_still_has_all(url, made)


@contextmanager
def two_clients(engine: Any, folder: Path) -> Iterator[tuple[httpx.Client, httpx.Client]]:
    settings = Settings(api_key_file=key_file(folder), python="off")
    with serving(engine, settings) as url, client_of(url, ALICE) as alice, client_of(url, MALLORY) as mallory:
        yield alice, mallory


def test_what_is_sealed_for_one_key_says_nothing_to_another(tmp_path: Path) -> None:
    with two_clients(scripted(*keyed.SCRIPT), tmp_path) as (alice, mallory):
        body = {"input": "Hi", "store": False, "include": ["reasoning.encrypted_content"]}
        reasoning = alice.post("/responses", json=body).json()["output"][0]
        assert reasoning["encrypted_content"]
        hers = {**reasoning, "id": "rs_1", "summary": [], "content": None}
        junk = {**hers, "encrypted_content": secrets.token_urlsafe(len(hers["encrypted_content"]) // 2)}
        ask_again = {"role": "user", "content": "Hi"}
        rendered = str(alice.base_url).removesuffix("/v1/") + "/render"
        seen = [
            client.post(rendered, json={"input": [ask_again, item, ask_again]}).text
            for client, item in ((alice, hers), (mallory, hers), (mallory, junk))
        ]
        assert "Quietly" in seen[0]
        assert "Quietly" not in seen[1]
        assert seen[1] == seen[2]


def test_another_owners_prompts_are_not_in_the_prefix_cache(tmp_path: Path) -> None:
    """With the real engine: how long a prompt takes, and `cached_tokens`, tell nothing of others."""
    from inference.backends.table import load

    with two_clients(load("tiny"), tmp_path) as (alice, mallory):
        body = {"input": "Who are you? " * 40, "max_output_tokens": 4}
        cached = [
            client.post("/responses", json=body).json()["usage"]["input_tokens_details"]["cached_tokens"]
            for client in (alice, mallory, alice, mallory)
        ]
    assert cached[:2] == [0, 0]
    assert min(cached[2:]) > 0
