"""A running server's API over HTTP, with the standard library.

Takes the server's address and key. Returns open replies or their JSON; a server that refuses or does not
answer is a sentence for the user.
"""

from __future__ import annotations

import http.client
import json
import ssl
import urllib.error
import urllib.request
from contextlib import closing
from typing import Any
from urllib.parse import urlsplit

from gpt_oss_server.cli.line.corrections import PROGRAM
from gpt_oss_server.cli.terminal.errors import CommandLineError

UNREACHABLE = (OSError, http.client.HTTPException)
_MOST_ERROR = 64 * 1024  # bytes of an error's body that are read


class ServerApi:
    def __init__(self, url: str, key: str | None) -> None:
        self.base = api_of(url)
        self._key = key

    def send(self, path: str, body: object = None, seconds: float | None = None) -> Any:
        """The open reply. Raises `HTTPError` for an error's status, else one of UNREACHABLE."""
        headers = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
        if self._key:
            headers["authorization"] = f"Bearer {self._key}"
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, headers)
        return urllib.request.urlopen(request, timeout=seconds)

    def fetch(self, path: str, seconds: float) -> Any:
        """The JSON at this path. Raises CommandLineError."""
        try:
            with closing(self.send(path, seconds=seconds)) as reply:
                return json.load(reply)
        except urllib.error.HTTPError as error:
            key = " Give its key with --api-key." if error.code in (401, 403) else ""
            raise CommandLineError(f"The server at {self.base} refused: {sentence(error)}{key}") from error
        except UNREACHABLE as error:
            raise CommandLineError(_without_answer(self.base, error)) from error
        except ValueError as error:
            raise CommandLineError(
                f"{self.base}{path} is not JSON. Is --url the base URL of an API?"
            ) from error


def api_of(url: str) -> str:
    """The base URL of a server's API, from what a person writes: localhost:8000, with or without /v1."""
    given = url if "://" in url else f"http://{url}"
    parts = urlsplit(given)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise CommandLineError(f"--url {url} is no address of a server, such as http://127.0.0.1:8000.")
    given = given.rstrip("/")
    return given if given.endswith("/v1") else f"{given}/v1"


def sentence(error: urllib.error.HTTPError) -> str:
    """The server's own words, else the status."""
    try:
        message = json.loads(error.read(_MOST_ERROR))["error"]["message"]
    except (OSError, ValueError, KeyError, TypeError):
        return f"status {error.code}, {error.reason}."
    return str(message)


def _without_answer(base: str, error: Exception) -> str:
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
        return (
            f"{base} closes the connection without an answer. If it speaks HTTPS: --url "
            f"{base.replace('http:', 'https:', 1)}."
        )
    return (
        f"No server answers at {base}: {reason(error)}. Start one with `{PROGRAM} serve`, or correct --url."
    )


def reason(error: Exception) -> str:
    inner = error.reason if isinstance(error, urllib.error.URLError) else error
    return (inner.strerror if isinstance(inner, OSError) else None) or str(inner) or type(inner).__name__
