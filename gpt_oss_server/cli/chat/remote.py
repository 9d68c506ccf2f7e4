"""A running server over HTTP, with the standard library: its API, and answers from its model.

Any server of the Responses API will do; one of this project also states what the model is. Leaving a stream
closes its connection, which stops the model.
"""

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import IO, Any
from urllib.parse import urlsplit

from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item
from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal.console import CommandLineError, introduction

_UNREACHABLE = (OSError, http.client.HTTPException)
_MOST_ERROR = 64 * 1024  # bytes of an error's body that are read
_ENDS = ("response.completed", "response.incomplete", "response.failed")
_AT_ROOT = ("/models/load", "/models/unload")
_FIRST_SECONDS = 20.0  # for the list of models; an answer may take any time


class RemoteTalker:
    def __init__(self, url: str, key: str | None, model: str | None = None) -> None:
        """Raises CommandLineError if no server answers there. `model`: None for the server's first one."""
        self._api = ServerApi(url, key)
        served = self._api.models(_FIRST_SECONDS)
        known = next((entry for entry in served if entry.get("id") == model), None)
        first: Item = known or (served[0] if served and model is None else {"id": model or "its model"})
        self._model: str = first["id"]
        described = introduction(self._model, str(first.get("description") or ""))
        self.introduction = f"{described}, at {self._api.base}"

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        try:
            with closing(self._api.send("/responses", {**body, "model": self._model})) as reply:
                for event in _events(reply):
                    show(event)
                    if event.get("type") in _ENDS:
                        response: Item = event["response"]
                        return response
                    if event.get("type") == "error":
                        raise CannotAnswer(str(event.get("message") or event))
        except urllib.error.HTTPError as error:
            raise CannotAnswer(refusal(error)) from error
        except _UNREACHABLE as error:
            where = self._api.base
            raise CannotAnswer(f"The server at {where} cannot be reached: {_reason(error)}.") from error
        raise CannotAnswer("The server ended the connection before the answer was complete.")

    def close(self) -> None:
        """Nothing stays open between two answers."""


class ServerApi:
    def __init__(self, url: str, key: str | None) -> None:
        self.base = base_url(url)
        self._key = key

    def send(
        self,
        path: str,
        body: object = None,
        seconds: float | None = None,
        *,
        method: str | None = None,
        form: tuple[IO[bytes], str] | None = None,
    ) -> Any:
        """The open reply to JSON or a `form`. Raises `HTTPError` for a status, else one of _UNREACHABLE."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        data: Any = None if body is None else json.dumps(body).encode()
        if form is not None:
            data, headers["content-type"] = form
            headers["content-length"] = str(data.seek(0, os.SEEK_END))
            data.seek(0)
        at = self.base.removesuffix("/v1") if path.startswith(_AT_ROOT) else self.base
        request = urllib.request.Request(at + path, data, headers, method=method)
        return urllib.request.urlopen(request, timeout=seconds)

    def fetch(self, path: str, seconds: float | None, body: object = None, **how: Any) -> Any:
        """The JSON at this path, as the answer to a body if there is one. Raises CommandLineError."""
        try:
            with self._opened(path, seconds, body, **how) as reply:
                return json.load(reply)
        except ValueError as error:
            problem = f"{self.base}{path} is not JSON."
            raise CommandLineError(f"{problem} Is --url the base URL of an API?") from error

    def lines(self, path: str, seconds: float) -> Iterator[bytes]:
        """Raises CommandLineError."""
        with self._opened(path, seconds) as reply:
            yield from reply

    @contextmanager
    def _opened(
        self, path: str, seconds: float | None, body: object = None, **how: Any
    ) -> Iterator[IO[bytes]]:
        try:
            with closing(self.send(path, body, seconds, **how)) as reply:
                yield reply
        except urllib.error.HTTPError as error:
            key = " Give its key with --api-key." if error.code in (401, 403) else ""
            raise CommandLineError(f"The server at {self.base} refused: {refusal(error)}{key}") from error
        except _UNREACHABLE as error:
            raise CommandLineError(without_answer(self.base, error)) from error

    def models(self, seconds: float) -> list[Item]:
        try:
            return [dict(entry) for entry in self.fetch("/models", seconds)["data"]]
        except (KeyError, TypeError, ValueError) as error:
            problem = f"{self.base}/models is no list of models."
            raise CommandLineError(f"{problem} Is --url the base URL of an API?") from error


def base_url(url: str) -> str:
    """The base URL of a server's API, from what a person writes: localhost:8000, with or without /v1."""
    address = url if "://" in url else f"http://{url}"
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandLineError(f"--url {url} is no address of a server, such as http://127.0.0.1:8000.")
    address = address.rstrip("/")
    return address if address.endswith("/v1") else f"{address}/v1"


def refusal(error: urllib.error.HTTPError) -> str:
    """The server's own words, else the status."""
    try:
        message = json.loads(error.read(_MOST_ERROR))["error"]["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"status {error.code}, {error.reason}."
    return str(message)


def without_answer(base: str, error: Exception) -> str:
    """What to do about a server that does not answer as HTTP, or not over TLS."""
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    if isinstance(inner, ssl.SSLCertVerificationError):
        return (
            f"The certificate of {base} cannot be verified: {inner.verify_message}. If you trust it, name "
            "its file, or that of its issuer, in the variable SSL_CERT_FILE."
        )
    if isinstance(inner, ssl.SSLError):
        return f"{base} does not speak HTTPS. Try --url {base.replace('https:', 'http:', 1)}."
    if isinstance(inner, http.client.RemoteDisconnected) and base.startswith("http:"):
        secure = base.replace("http:", "https:", 1)
        return f"{base} closes the connection without an answer. If it speaks HTTPS: --url {secure}."
    problem = f"No server answers at {base}: {_reason(error)}."
    return f"{problem} Start one with `{PROGRAM} serve`, or correct --url."


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__


def _events(reply: IO[bytes]) -> Iterator[Item]:
    """The JSON objects of a stream of server-sent events."""
    data: list[bytes] = []
    for line in reply:
        line = line.rstrip(b"\r\n")
        if line.startswith(b"data:"):
            data.append(line.removeprefix(b"data:").removeprefix(b" "))
        elif not line and data:
            text, data = b"\n".join(data), []
            if text != b"[DONE]":
                yield json.loads(text)
