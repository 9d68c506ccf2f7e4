"""Answers from a running server: the Responses API over HTTP, with the standard library.

Takes the server's address and key. Any server of this API will do; one of this project also tells what the
model is. Leaving a stream closes its connection, which stops the model.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO, Any
from urllib.parse import urlsplit

from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item
from gpt_oss_server.cli.terminal.errors import CommandLineError
from gpt_oss_server.cli.terminal.introduction import introduction

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_FIRST_SECONDS = 20.0  # for the list of models; an answer may take any time
_MOST_ERROR = 64 * 1024  # bytes of an error's body that are read


class RemoteTalker:
    def __init__(self, url: str, key: str | None, model: str | None = None) -> None:
        """Raises CommandLineError if no server answers there. `model`: None for the server's first one."""
        self._api = api_of(url)
        self._key = key
        served = self._models()
        known = next((each for each in served if each.get("id") == model), None)
        first: Item = known or (served[0] if served and model is None else {"id": model or "its model"})
        self._model: str = first["id"]
        described = introduction(self._model, str(first.get("description") or ""))
        self.introduction = f"{described}, at {self._api}"
        self.is_demo = bool(first.get("is_demo"))

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        try:
            with closing(self._send("/responses", {**body, "model": self._model})) as reply:
                for event in events_of(reply):
                    show(event)
                    if event.get("type") in _ENDS:
                        response: Item = event["response"]
                        return response
                    if event.get("type") == "error":
                        raise CannotAnswer(str(event.get("message") or event))
        except urllib.error.HTTPError as error:
            raise CannotAnswer(_sentence(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise CannotAnswer(f"The server at {self._api} cannot be reached: {_reason(error)}.") from error
        raise CannotAnswer("The server ended the connection before the answer was complete.")

    def close(self) -> None:
        """Nothing stays open between two answers."""

    def _models(self) -> list[Item]:
        try:
            with closing(self._send("/models", None, _FIRST_SECONDS)) as reply:
                listed = json.load(reply)["data"]
            return [dict(each) for each in listed]
        except urllib.error.HTTPError as error:
            key = " Give its key with --api-key." if error.code in (401, 403) else ""
            raise CommandLineError(f"The server at {self._api} refused: {_sentence(error)}{key}") from error
        except (OSError, http.client.HTTPException) as error:
            raise CommandLineError(
                f"No server answers at {self._api}: {_reason(error)}. Start one with `gpt-oss-server serve`, "
                "or correct --url."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise CommandLineError(
                f"{self._api}/models is no list of models. Is --url the base URL of an API?"
            ) from error

    def _send(self, path: str, body: Item | None, seconds: float | None = None) -> Any:
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._api + path, data, headers)
        return urllib.request.urlopen(request, timeout=seconds)


def api_of(url: str) -> str:
    """The base URL of a server's API, from what a person writes: localhost:8000, with or without /v1."""
    given = url if "://" in url else f"http://{url}"
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandLineError(f"--url {url} is no address of a server, such as http://127.0.0.1:8000.")
    given = given.rstrip("/")
    return given if given.endswith("/v1") else f"{given}/v1"


def events_of(reply: IO[bytes]) -> Iterator[Item]:
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


def _sentence(error: urllib.error.HTTPError) -> str:
    """The server's own words, else the status."""
    try:
        message = json.loads(error.read(_MOST_ERROR))["error"]["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"status {error.code}, {error.reason}."
    return str(message)


def _reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
