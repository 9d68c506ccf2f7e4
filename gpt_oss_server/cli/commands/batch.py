"""Have a running server answer a file of requests when nothing else waits, and write the answers to a file.

Each line of FILE is {"custom_id": "…", "method": "POST", "url": "/v1/responses", "body": {…}}. The server
goes on if this command ends: the same command then waits for it again. What OUT already answers is not asked.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from gpt_oss_server.cli.commands.chat import add_server, server_key
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from gpt_oss_server.cli.chat.remote import ServerApi

EXAMPLES = """\
examples:
  gpt-oss-server batch requests.jsonl --out answers.jsonl
  gpt-oss-server batch requests.jsonl --out answers.jsonl --window 7d --url http://127.0.0.1:9000

OUT gets a line for each answer, whether it is a success or an error; to ask again for one, delete its line.
The exit code is 0 if every request has succeeded."""

_SECONDS = 60.0  # for an answer about a batch
_LOOK_SECONDS = 1.0
_MOST_FAILED_LOOKS = 60  # a server may start again meanwhile
_ENDED, _BROKEN = ("completed", "failed", "expired", "cancelled"), ("failed", "expired", "cancelled")


def add_arguments(parser: argparse.ArgumentParser, *, everything: bool = True) -> None:
    parser.add_argument("file", metavar="FILE", help="requests, one in JSON on each line")
    parser.add_argument("--out", required=True, metavar="OUT", type=Path, help="where the answers go")
    window = "the time that the server has: hours or days (default: 24h)"
    parser.add_argument("--window", default="24h", metavar="TIME", help=window)
    add_server(parser)


def run(args: argparse.Namespace, settings: Settings) -> int:
    from gpt_oss_server.cli.chat.remote import ServerApi

    out: Path = args.out
    with tempfile.TemporaryFile() as content:
        form = Form(args.file, _answered(out), content)
        if form.left:
            api = ServerApi(args.url, server_key(args))
            batch = _begun_before(api, form.digest) or _begin(api, form, args.window)
            try:
                batch = _ended(api, batch, len(form.left))
            except KeyboardInterrupt:
                console.err(f"\nThe server goes on with {batch['id']}. The same command waits for it again.")
                raise
            _report(batch, form)
            _collect(api, batch, out)
    answered = _answered(out)
    known = [answered[name] for name in form.names if name in answered]
    failed = known.count(False)
    console.err(
        f"{out} has answers to {len(known):,} of {len(form.names):,}; {failed:,} of them with an error."
    )
    return int(failed > 0 or len(known) < len(form.names))


class Form:
    """The requests of a file without those that are answered, as the form that uploads them."""

    def __init__(self, name: str, answered: dict[str, bool], content: IO[bytes]) -> None:
        """Raises CommandLineError."""
        self.content = content
        self.names: list[str] = []
        self.left: list[int] = []  # the numbers of the lines that are not answered
        self.endpoint: object = None
        boundary = uuid.uuid4().hex
        self.type = f"multipart/form-data; boundary={boundary}"
        part = f'--{boundary}\r\nContent-Disposition: form-data; name="'
        content.write(f'{part}purpose"\r\n\r\nbatch\r\n'.encode())
        content.write(f'{part}file"; filename="requests.jsonl"\r\n\r\n'.encode())
        digest = hashlib.sha256()
        for number, request, line in _objects(Path(name)):
            self.names.append(request["custom_id"])
            if request["custom_id"] in answered:
                continue
            self.endpoint = self.endpoint or request.get("url")
            self.left.append(number)
            digest.update(line)
            content.write(line)
        content.write(f"\r\n--{boundary}--\r\n".encode())
        self.digest = digest.hexdigest()


def _objects(path: Path) -> Iterator[tuple[int, dict[str, Any], bytes]]:
    """The lines that are not empty: their numbers, what they hold, and their bytes."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                held = json.loads(line)
            except ValueError as error:
                raise CommandLineError(f"Line {number} of {path} is not JSON: {error}.") from error
            if not isinstance(held, dict) or not isinstance(held.get("custom_id"), str):
                raise CommandLineError(
                    f"Line {number} of {path} is not an object with a `custom_id`, a text."
                )
            yield number, held, line.rstrip(b"\r\n") + b"\n"


def _answered(out: Path) -> dict[str, bool]:
    """Whether each request that a file answers has succeeded."""
    if not out.parent.is_dir():
        raise CommandLineError(f"--out {out}: there is no folder {out.parent}.")
    answers = _objects(out) if out.exists() else ()
    try:
        return {answer["custom_id"]: answer["response"]["status_code"] == 200 for _, answer, _ in answers}
    except (KeyError, TypeError) as error:
        raise CommandLineError(f"{out} holds lines that are no answers. Name another --out.") from error


def _begun_before(api: ServerApi, digest: str) -> dict[str, Any] | None:
    """The batch of the same requests whose answers were never fetched: then its files would be gone."""
    files = {file["id"] for file in _all(api, "/files?purpose=batch&limit=10000")}
    for batch in _all(api, "/batches?limit=100"):
        is_same = (batch.get("metadata") or {}).get("requests") == digest and batch["input_file_id"] in files
        if is_same and (batch["status"] not in _BROKEN or batch.get("output_file_id")):
            return batch
    return None


def _all(api: ServerApi, path: str) -> Iterator[dict[str, Any]]:
    after = ""
    while True:
        page = api.fetch(path + after, _SECONDS)
        yield from page["data"]
        if not page.get("has_more"):
            return
        after = f"&after={page['data'][-1]['id']}"


def _begin(api: ServerApi, form: Form, window: str) -> dict[str, Any]:
    file = api.fetch("/files", None, form=(form.content, form.type))
    wanted = {"input_file_id": file["id"], "endpoint": form.endpoint, "completion_window": window}
    begun: dict[str, Any] = api.fetch("/batches", _SECONDS, {**wanted, "metadata": {"requests": form.digest}})
    return begun


def _ended(api: ServerApi, batch: dict[str, Any], total: int) -> dict[str, Any]:
    from inference.progress import ProgressBar

    console.err(f"The server works on {batch['id']}, {total:,} requests.")
    with ProgressBar("Answering", total) as bar:
        done = failed_looks = 0
        while batch["status"] not in _ENDED:
            time.sleep(_LOOK_SECONDS)
            try:
                batch = api.fetch(f"/batches/{batch['id']}", _SECONDS)
            except CommandLineError:
                failed_looks += 1
                if failed_looks > _MOST_FAILED_LOOKS:
                    raise
                continue
            before, failed_looks = done, 0
            done = batch["request_counts"]["completed"] + batch["request_counts"]["failed"]
            bar.advance(done - before)
    return batch


def _report(batch: dict[str, Any], form: Form) -> None:
    """States what ended a batch early. Raises CommandLineError if nothing was asked."""
    if batch["status"] == "failed":
        problems = [
            f"Line {form.left[error['line'] - 1]}: {error['message']}"
            if error.get("line")
            else error["message"]
            for error in batch["errors"]["data"]
        ]
        raise CommandLineError("The server refused the batch.\n" + "\n".join(problems))
    if batch["status"] in _BROKEN:
        console.err(f"The batch is {batch['status']}. The same command asks again what has no answer.")


def _collect(api: ServerApi, batch: dict[str, Any], out: Path) -> None:
    """Adds the answers to the file, whole or not at all. Then the server needs its files no more."""
    part, whole = out.with_name(f"{out.name}.part"), 0
    with part.open("wb") as new:
        if out.exists():
            with out.open("rb") as old:
                shutil.copyfileobj(old, new)
        files = [batch[name] for name in ("output_file_id", "error_file_id") if batch.get(name)]
        for file in files:
            for line in api.lines(f"/files/{file}/content", _SECONDS):
                if line.endswith(b"\n"):
                    whole += 1
                    new.write(line if json.loads(line)["response"] else b"")
    if whole != batch["request_counts"]["total"]:
        raise CommandLineError("Not all answers arrived. The same command fetches them again.")
    os.replace(part, out)
    for file in (*files, batch["input_file_id"]):
        api.fetch(f"/files/{file}", _SECONDS, method="DELETE")
