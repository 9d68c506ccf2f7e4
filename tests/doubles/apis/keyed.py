"""Two clients of one server, each with a key of its own, and everything that one of them has made there."""

import itertools
import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from websockets.exceptions import InvalidStatus
from websockets.sync.client import ClientConnection, connect

from gpt_oss_server.settings import Settings

ALICE, MALLORY = "sk-of-alice-2b7e151628aed2a6", "sk-of-mallory-9f86d081884c7d65"
CALL = "<|channel|>analysis to=python code<|message|>open('/mnt/data/a.txt', 'w').write('secret')<|call|>"
SCRIPT: list[Any] = [
    {"when": r"WRITE<\|end\|><\|start\|>assistant$", "text": CALL},
    {"when": r"LONG<\|end\|><\|start\|>assistant$", "text": "<|channel|>final<|message|>" + "word " * 9_000},
    "<|channel|>analysis<|message|>Quietly.<|end|>"
    "<|start|>assistant<|channel|>final<|message|>The secret is kept.<|return|>",
]
_LIMITS = httpx.Limits(keepalive_expiry=1)  # sooner than the server closes an idle connection
SPEED = 2_000  # tokens per second, so that a long answer is running while others are asked for it


def with_keys(folder: Path, *lines: str, **settings: Any) -> Settings:
    (folder / "keys").write_text("\n".join(lines))
    return Settings(api_key_file=str(folder / "keys"), **{"python": "off", **settings})


def key_file(folder: Path, *lines: str) -> str:
    with_keys(folder, f"{ALICE} name=alice", f"{MALLORY} name=mallory", *lines)
    return str(folder / "keys")


def client_of(url: str, key: str) -> httpx.Client:
    return httpx.Client(base_url=url, headers={"Authorization": f"Bearer {key}"}, timeout=60, limits=_LIMITS)


def socket_of(url: str, key: str) -> ClientConnection:
    place = url.replace("http:", "ws:") + "/responses"
    return connect(place, additional_headers={"Authorization": f"Bearer {key}"})


def socket_status(url: str, **options: Any) -> int:
    try:
        with connect(url.replace("http:", "ws:") + "/responses", **options):
            return 101
    except InvalidStatus as refused:
        return refused.response.status_code


def ask(socket: ClientConnection, **body: Any) -> dict[str, Any]:
    """The last event of a request over a WebSocket."""
    socket.send(json.dumps({"type": "response.create", "input": "Hi", **body}))
    while True:
        event: dict[str, Any] = json.loads(socket.recv(timeout=30))
        if event["type"] in ("error", "response.completed", "response.failed", "response.incomplete"):
            return event


def posted(client: httpx.Client, path: str, **body: Any) -> dict[str, Any]:
    answer = client.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return dict(answer.json())


@dataclass
class Made:
    responses: list[str] = field(default_factory=list)
    conversations: list[str] = field(default_factory=list)
    items: list[str] = field(default_factory=list)
    completions: list[str] = field(default_factory=list)
    containers: list[str] = field(default_factory=list)
    files: list[tuple[str, str]] = field(default_factory=list)  # container, file

    @property
    def all(self) -> list[str]:
        kinds = (self.responses, self.conversations, self.items, self.completions, self.containers)
        return [*itertools.chain(*kinds), *(file for _, file in self.files)]


def make_everything(client: httpx.Client, *, python: bool) -> Made:
    """One of each: also a response that is still running in the background."""
    made = Made()
    first = posted(client, "/responses", input=[{"role": "user", "content": "Hi"}])
    second = posted(client, "/responses", input="Go on", previous_response_id=first["id"])
    made.responses += [first["id"], second["id"]]
    made.items += [item["id"] for item in second["output"]]
    ended = posted(client, "/responses", input="Hi", background=True)
    made.responses.append(ended["id"])
    while client.get(f"/responses/{ended['id']}").json()["status"] in ("queued", "in_progress"):
        time.sleep(0.02)
    given = {"type": "message", "role": "user", "content": "My secret"}
    conversation = posted(client, "/conversations", items=[given])
    made.conversations.append(conversation["id"])
    listed = client.get(f"/conversations/{conversation['id']}/items").json()
    made.items += [item["id"] for item in listed["data"]]
    posted(client, "/responses", input="Hi", conversation=conversation["id"])
    messages = [{"role": "user", "content": "Hi"}]
    made.completions.append(posted(client, "/chat/completions", messages=messages, store=True)["id"])
    if python:
        tools = [{"type": "code_interpreter", "container": {"type": "auto"}}]
        ran = posted(client, "/responses", input="WRITE", tools=tools)
        made.responses.append(ran["id"])
        made.containers.append(next(item["container_id"] for item in ran["output"] if "container_id" in item))
        made.containers.append(posted(client, "/containers", name="data")["id"])
        for container in made.containers:
            client.post(
                f"/containers/{container}/files", files={"file": ("b.txt", b"secret")}
            ).raise_for_status()
            for file in client.get(f"/containers/{container}/files").json()["data"]:
                made.files.append((container, file["id"]))
    made.responses.append(posted(client, "/responses", input="LONG", background=True)["id"])
    return made
