"""The files of a conversation's python, through the official SDK and plain HTTP."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI

from gpt_oss_server.apis.containers.sessions import Containers, CreateContainer
from gpt_oss_server.caller.caller import LOCAL, Caller
from gpt_oss_server.errors import ContainerNotFound
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import Toolset
from tests.doubles.apis.api_client import client_of
from tests.doubles.apis.asking import responses_service
from tests.doubles.serving import scripted, serving
from tests.doubles.tools.scripted_tool import Clock, Ready
from tests.tools.python.conftest import needs_bubblewrap
from tools.python import PythonTool
from tools.python.sandboxes.bounds.limits import SandboxLimits
from tools.python.sandboxes.unsafe_local import UnsafeLocal
from tools.toolbox import Offer, Toolbox

CALL = "<|channel|>analysis to=python code<|message|>{}<|call|>"
ANSWER = "<|channel|>final<|message|>Done.<|return|>"
CODE = {
    "WRITE": "open('/mnt/data/out.txt', 'w').write('made by the model')",
    "READ": "print(open('/mnt/data/in.csv').read())",
    "DIE": "import os, threading; threading.Timer(0.8, os._exit, (1,)).start()",
    "STATE": "print(sorted(__import__('os').listdir('/mnt/data')))",
}
CLOSED = Settings(python="off", browser="off")
TOOLS: Any = [{"type": "code_interpreter", "container": {"type": "auto"}}]


def served(*turns: Any, **settings: int) -> AbstractContextManager[OpenAI]:
    needs_bubblewrap()
    bounds = Settings(python="bubblewrap", browser="off", **settings)  # type: ignore[arg-type]
    return client_of(*turns, ANSWER, settings=bounds)


@pytest.fixture(scope="module")
def client() -> Iterator[OpenAI]:
    end = r"<\|end\|><\|start\|>assistant$"
    turns = [{"when": f"{word}{end}", "text": CALL.replace("{}", code)} for word, code in CODE.items()]
    with served(*turns, max_body_bytes=1_000_000) as client:
        yield client


def next_tick() -> None:
    """Waits until files written now get a later time: the kernel's clock for files is coarse."""
    time.sleep(0.02)


def ask(client: OpenAI, word: str, previous: str | None = None, tools: Any = TOOLS) -> tuple[str, str, str]:
    """The response's id, the container, and what the code printed."""
    more: Any = {"previous_response_id": previous, "include": ["code_interpreter_call.outputs"]}
    response = client.responses.create(input=word, tools=tools, **more)
    call = response.output[0]
    assert call.type == "code_interpreter_call"
    logs = "".join(output.logs for output in call.outputs or [] if output.type == "logs")
    return response.id, call.container_id, logs


def test_what_the_model_wrote_is_listed_and_downloaded(client: OpenAI) -> None:
    response, container, _ = ask(client, "WRITE")
    found = client.containers.retrieve(container)
    assert (found.id, found.object, found.status) == (container, "container", "running")
    assert found.created_at == int(client.responses.retrieve(response).created_at)
    assert found.created_at <= (found.last_active_at or 0)
    (file,) = client.containers.files.list(container).data
    assert (file.path, file.bytes, file.source) == ("/mnt/data/out.txt", 17, "assistant")
    assert (file.object, file.container_id) == ("container.file", container)
    named: Any = {"file_id": file.id, "container_id": container}
    assert client.containers.files.retrieve(**named).model_dump() == file.model_dump()
    content = client.containers.files.content.retrieve(**named)
    assert content.read() == b"made by the model"
    assert content.response.headers["content-disposition"].startswith("attachment")
    assert content.response.headers["x-content-type-options"] == "nosniff"


def test_the_model_reads_an_uploaded_file(client: OpenAI) -> None:
    first, container, _ = ask(client, "WRITE")
    content = b"a,b\r\n--1,2\r\n\r\n"
    next_tick()
    created = client.containers.files.create(container, file=("in.csv", content)).id
    file = client.containers.files.retrieve(created, container_id=container)
    assert (file.path, file.bytes, file.source) == ("/mnt/data/in.csv", len(content), "user")
    assert client.containers.files.content.retrieve(created, container_id=container).read() == content
    assert "--1,2" in ask(client, "READ", previous=first)[2]
    paths = [each.path for each in client.containers.files.list(container, order="asc")]
    assert paths == ["/mnt/data/out.txt", "/mnt/data/in.csv"]


def test_any_request_can_name_a_container_without_a_conversation(client: OpenAI) -> None:
    created = client.containers.create(name="data", expires_after={"anchor": "last_active_at", "minutes": 20})
    assert (created.object, created.name, created.status) == ("container", "data", "running")
    assert client.containers.retrieve(created.id).name == "data"
    client.containers.files.create(created.id, file=("in.csv", b"a,b"))
    tools: Any = [{"type": "code_interpreter", "container": created.id}]
    for _ in range(2):  # two conversations, one container
        assert ask(client, "READ", tools=tools)[1:] == (created.id, "a,b\n")
    messages: Any = [{"role": "user", "content": "READ"}]
    chat: Any = client.chat.completions.create(model="scripted", messages=messages, tools=tools)
    [ran] = chat.choices[0].message.executed_tools
    assert "a,b" in ran["output"]
    client.containers.delete(created.id)
    with pytest.raises(NotFoundError) as gone:
        client.responses.create(input="READ", tools=tools)
    assert gone.value.code == "container_not_found"


def test_the_id_of_a_response_does_not_reveal_its_container(client: OpenAI) -> None:
    response, container, _ = ask(client, "WRITE")
    secret = response.removeprefix("resp_")
    assert container.startswith("cntr_")
    assert secret not in container
    for guess in (f"cntr_{secret}", secret, response, f"cntr_{response}", container[:-1], container.upper()):
        with pytest.raises(NotFoundError):
            client.containers.retrieve(guess)
        with pytest.raises((NotFoundError, BadRequestError)):
            client.responses.create(input="READ", tools=[{"type": "code_interpreter", "container": guess}])


def test_lists_come_in_pages(client: OpenAI) -> None:
    _, container, _ = ask(client, "WRITE")
    for name in ("b.txt", "sub/c.txt"):
        next_tick()
        client.containers.files.create(container, file=(name, b"x"))
    seen = [file.path for file in client.containers.files.list(container, limit=2, order="asc")]
    assert seen == ["/mnt/data/out.txt", "/mnt/data/b.txt", "/mnt/data/sub/c.txt"]


def test_containers_are_listed_and_found_by_name(client: OpenAI) -> None:
    made = [client.containers.create(name=name, memory_limit="1g").id for name in ("data", "plots", "data")]
    _, used, _ = ask(client, "WRITE")
    ids = [listed.id for listed in client.containers.list(limit=1)]  # through the pages
    assert {*made} <= {*ids}
    assert used not in ids, "a list has only what its reader created"
    assert len(ids) == len(set(ids))
    others = httpx.get(f"{client.base_url}containers", params={"limit": 100}).json()["data"]
    assert not {*ids, used} & {listed["id"] for listed in others}
    assert [listed.id for listed in client.containers.list(name="data", order="asc")] == made[::2]
    client.containers.delete(made[0])
    assert [listed.id for listed in client.containers.list(name="data")] == [made[2]]


def test_files_and_containers_are_deleted(client: OpenAI) -> None:
    first, container, _ = ask(client, "WRITE")
    awkward = client.containers.files.create(container, file=("it's (a) 東京 file.txt", b"x"))
    assert awkward.path == "/mnt/data/it's (a) 東京 file.txt"
    client.containers.files.delete(awkward.id, container_id=container)
    second, _, logs = ask(client, "STATE", previous=first)
    assert logs == "['out.txt']\n"
    with pytest.raises(NotFoundError) as gone:
        client.containers.files.retrieve(awkward.id, container_id=container)
    assert gone.value.code == "file_not_found"
    client.containers.delete(container)
    with pytest.raises(NotFoundError):
        client.containers.retrieve(container)
    assert ask(client, "STATE", previous=second)[2] == "[]\n"


def test_deleting_a_file_does_not_consume_the_notice_of_a_restart(client: OpenAI) -> None:
    first, container, _ = ask(client, "DIE")
    file = client.containers.files.create(container, file=("in.csv", b"x"))
    time.sleep(1.5)
    client.containers.files.delete(file.id, container_id=container)
    logs = ask(client, "STATE", previous=first)[2]
    assert logs.startswith("[The kernel was restarted: its process had ended between calls.")
    assert logs.endswith("[]\n")


@pytest.mark.parametrize("container", ["cntr_unknown", "resp_x", "x", "cntr_", "cntr_resp_x"])
def test_an_unknown_container_is_a_404(client: OpenAI, container: str) -> None:
    for path in ("", "/files", "/files/cfile_x", "/files/cfile_x/content"):
        answer = httpx.get(f"{client.base_url}containers/{container}{path}")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "container_not_found"
    with pytest.raises(NotFoundError):
        client.containers.files.create(container, file=("a.txt", b"x"))


def test_files_that_were_uploaded_before_go_into_containers(client: OpenAI) -> None:
    files = [client.files.create(file=(name, b"x,y"), purpose="user_data").id for name in ("a.csv", "b.csv")]
    made = client.containers.create(name="data", file_ids=files[:1])
    added = client.containers.files.create(made.id, file_id=files[1])
    assert (added.path, added.bytes, added.source) == ("/mnt/data/b.csv", 3, "user")
    listed = client.containers.files.list(made.id, order="asc").data
    assert [file.path for file in listed] == ["/mnt/data/a.csv", "/mnt/data/b.csv"]
    with pytest.raises(NotFoundError, match=r"`file_ids\[1\]`: there is no file 'file-1'"):
        client.containers.create(name="none", file_ids=[files[0], "file-1"])
    assert not client.containers.list(name="none").data
    client.containers.delete(made.id)


def test_files_of_a_request_are_in_its_container(client: OpenAI) -> None:
    files = [client.files.create(file=("in.csv", text), purpose="user_data").id for text in (b"x,y", b"z")]
    tools: Any = [{"type": "code_interpreter", "container": {"type": "auto", "file_ids": files}}]
    first, container, logs = ask(client, "READ", tools=tools)
    assert logs == "x,y\n"
    names = ["in.csv", f"{files[1]}-in.csv"]
    render = str(client.base_url).replace("/v1/", "/render")
    rendered = httpx.post(render, json={"input": "?", "tools": tools})
    assert f"The user's files are in /mnt/data: {', '.join(names)}\n" in rendered.json()["text"]
    for listed in client.containers.files.list(container):
        assert (listed.path.removeprefix("/mnt/data/") in names, listed.source) == (True, "user")
        client.containers.files.delete(listed.id, container_id=container)
    assert "FileNotFoundError" in ask(client, "READ", first, tools)[2], "a file is copied once"
    tools[0]["container"]["file_ids"] = ["file-1"]
    with pytest.raises(NotFoundError, match="there is no file 'file-1'"):
        ask(client, "READ", tools=tools)


def typed(kind: str) -> dict[str, Any]:
    return {"content": b"x", "headers": {"content-type": kind}}


BAD_UPLOADS: list[tuple[dict[str, Any], int, str]] = [
    ({"json": {"file_id": "file-1"}}, 404, "there is no file 'file-1'"),
    ({"json": {"name": "a.txt"}}, 400, "`file_id` must be"),
    ({"files": {"file": ("../a.txt", b"x")}}, 400, "/mnt/data"),
    ({"files": {"file": ("/etc/passwd", b"x")}}, 400, "/mnt/data"),
    (typed("text/plain"), 400, "cannot be sent as"),
    (typed("multipart/form-data"), 400, "boundary"),
    ({"files": {"other": ("a.txt", b"x")}}, 400, "no field `file`"),
    ({"files": {"file": ("a.txt", b"x" * 1_100_000)}}, 413, "larger than"),
]


@pytest.mark.parametrize(("sent", "status", "sentence"), BAD_UPLOADS)
def test_an_invalid_upload_is_explained(client: OpenAI, sent: Any, status: int, sentence: str) -> None:
    _, container, _ = ask(client, "WRITE")
    answer = httpx.post(f"{client.base_url}containers/{container}/files", **sent)
    assert (answer.status_code, sentence in answer.json()["error"]["message"]) == (status, True), answer.text


def test_without_python_an_upload_names_the_setting() -> None:
    with serving(scripted(ANSWER), CLOSED) as url:
        answer = httpx.post(f"{url}/containers/cntr_x/files", json={"file_id": "file-1"})
        assert answer.json()["error"]["code"] == "tool_unavailable"
        assert httpx.get(f"{url}/containers/cntr_x").status_code == 404


NETWORK = {"type": "allowlist", "allowed_domains": ["x.org"]}
BAD_BODIES: list[tuple[str, Any, str]] = [
    ("container", 3, ""),
    ("container", "mine", ""),
    ("container", {"type": "auto", "file_ids": "file-1"}, ".file_ids"),
    ("container", {"type": "auto", "memory_limit": "64g"}, ".memory_limit"),
    ("container", {"type": "auto", "network_policy": NETWORK}, ".network_policy"),
    ("allowed_callers", ["programmatic"], ""),
    ("file_ids", "file-1", ""),
    ("memory_limit", "64g", ""),
    ("network_policy", NETWORK, ""),
    ("expires_after", {"anchor": "last_active_at", "minutes": 60}, ".minutes"),
    ("name", 3, ""),
]


@pytest.mark.parametrize(("field", "value", "place"), BAD_BODIES, ids=str)
def test_an_unsupported_field_is_named(client: OpenAI, field: str, value: Any, place: str) -> None:
    path, head, body = "containers", "", {field: value}
    if field in {"container", "allowed_callers"}:
        tool = {"type": "code_interpreter", **body}
        path, head, body = "responses", "tools[0].", {"input": "READ", "tools": [tool]}
    refused = httpx.post(f"{client.base_url}{path}", json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, f"{head}{field}{place}")


def test_many_containers_are_refused_and_throw_out_no_files() -> None:
    with served(python_max_sessions=3, python_max_sessions_per_client=2) as client:
        url = f"{client.base_url}containers"
        first = client.containers.create(name="mine").id
        file = client.containers.files.create(first, file=("in.csv", b"kept"))
        answers = [httpx.post(url, json={"name": "x"}) for _ in range(70)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert len(refused) >= 67
        error = refused[-1].json()["error"]
        assert (error["type"], error["code"]) == ("rate_limit_error", "too_many_containers")
        assert "Delete one, or try again later" in error["message"]
        assert refused[-1].headers["x-should-retry"] == "false"
        assert client.containers.files.content.retrieve(file.id, container_id=first).read() == b"kept"
        client.containers.delete(first)
        assert httpx.post(url, json={"name": "x"}).status_code == 200


def test_files_beyond_the_memory_of_all_containers_are_refused() -> None:
    with served(python_memory=130 * 1024**2, max_body_bytes=64 * 1024**2) as client:
        url = f"{client.base_url}containers/{client.containers.create(name='mine').id}/files"
        content = b"x" * 20_000_000
        answers = [httpx.post(url, files={"file": (str(number), content)}, timeout=60) for number in range(8)]
    assert (answers[0].status_code, answers[-1].status_code) == (200, 429)
    assert "delete files or containers" in answers[-1].json()["error"]["message"]


async def test_a_container_that_a_client_uses_is_not_idle(encoding: Encoding) -> None:
    """No code runs here: the client only finds the container, as it does for each upload."""
    clock, minute, me = Clock(), 60.0, Caller(client="me")
    python = PythonTool(UnsafeLocal(SandboxLimits(), interpreter="python"))
    toolset = Toolset(Toolbox([Offer(python)], clock=lambda: clock.now), local={"python"})
    timed: dict[str, Any] = {"tools": Ready(toolset), "clock": lambda: clock.now}
    service = responses_service(scripted("<|return|>"), encoding=encoding, **timed)
    containers = Containers(service.served)
    kept = (await containers.create("a", CreateContainer(name="kept"), me)).id
    left = (await containers.create("b", CreateContainer(name="left"), me)).id
    await containers.create("c", CreateContainer(name="another's"), Caller(client="you"))
    for _ in range(3):
        clock.now += 15 * minute
        assert (await containers.find(kept, LOCAL)).as_json()["last_active_at"] == int(clock.now)
    assert [listed.metadata.name for listed in await containers.created_by("me")] == ["kept"]
    with pytest.raises(ContainerNotFound):
        await containers.find(left, LOCAL)
    clock.now += 15 * minute
    [listed] = await containers.created_by("me")
    assert listed.as_json()["last_active_at"] == int(clock.now - 15 * minute), "a list uses no container"
    clock.now += 6 * minute
    assert await containers.created_by("me") == []
    await service.close()
    await toolset.close()
