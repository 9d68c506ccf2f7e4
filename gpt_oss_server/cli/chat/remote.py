"""Answers from a running server: the Responses API over HTTP, with the standard library.

Takes the server's address and key. Any server of this API will do; one of this project also tells what the
model is. Leaving a stream closes its connection, which stops the model.
"""

from __future__ import annotations

import json
import urllib.error
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import IO

from gpt_oss_server.cli.chat.server_api import UNREACHABLE, ServerApi, reason, sentence
from gpt_oss_server.cli.chat.talker import CannotAnswer, Event, Item
from gpt_oss_server.cli.terminal.errors import CommandLineError
from gpt_oss_server.cli.terminal.introduction import introduction

_ENDS = ("response.completed", "response.incomplete", "response.failed")
_FIRST_SECONDS = 20.0  # for the list of models; an answer may take any time


class RemoteTalker:
    def __init__(self, url: str, key: str | None, model: str | None = None) -> None:
        """Raises CommandLineError if no server answers there. `model`: None for the server's first one."""
        self._api = ServerApi(url, key)
        served = self._models()
        known = next((each for each in served if each.get("id") == model), None)
        first: Item = known or (served[0] if served and model is None else {"id": model or "its model"})
        self._model: str = first["id"]
        described = introduction(self._model, str(first.get("description") or ""))
        self.introduction = f"{described}, at {self._api.base}"
        self.is_demo = bool(first.get("is_demo"))

    def answer(self, body: Item, show: Callable[[Event], None]) -> Item:
        try:
            with closing(self._api.send("/responses", {**body, "model": self._model})) as reply:
                for event in events_of(reply):
                    show(event)
                    if event.get("type") in _ENDS:
                        response: Item = event["response"]
                        return response
                    if event.get("type") == "error":
                        raise CannotAnswer(str(event.get("message") or event))
        except urllib.error.HTTPError as error:
            raise CannotAnswer(sentence(error)) from error
        except UNREACHABLE as error:
            raise CannotAnswer(
                f"The server at {self._api.base} cannot be reached: {reason(error)}."
            ) from error
        raise CannotAnswer("The server ended the connection before the answer was complete.")

    def close(self) -> None:
        """Nothing stays open between two answers."""

    def _models(self) -> list[Item]:
        try:
            return [dict(each) for each in self._api.fetch("/models", _FIRST_SECONDS)["data"]]
        except (KeyError, TypeError, ValueError) as error:
            raise CommandLineError(
                f"{self._api.base}/models is no list of models. Is --url the base URL of an API?"
            ) from error


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
