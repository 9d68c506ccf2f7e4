"""Refuses requests without a right key, before anything runs, and decides for whom the others run.

What a probe or a browser needs before it can have a key is public: the server's state, and the files of its
pages. An address that sends too many wrong keys is slowed (`guesses`).
"""

from collections.abc import Callable, Sequence
from typing import Literal

from starlette.types import ASGIApp, Receive, Scope, Send

from gpt_oss_server.caller.access import OPEN, Access
from gpt_oss_server.caller.guesses import Guesses
from gpt_oss_server.caller.key_file import digest_of
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.caller.record import KEY_NAME
from gpt_oss_server.errors import ApiError, InvalidApiKey, TooManyWrongKeys
from gpt_oss_server.http.connections.sub_protocols import key_among
from gpt_oss_server.http.edge import caller_of, set_caller
from gpt_oss_server.http.guards.hosts import refuse

_PUBLIC = frozenset({"/", "/health", "/ready", "/live", "/metrics", "/docs", "/openapi.json"})
_PUBLIC_FOLDERS = ("/web/", "/c/", "/docs/")
_READS = ("GET", "HEAD")
_NO_KEY = (
    "This server needs an API key. Send it as `Authorization: Bearer KEY` or `X-Api-Key: KEY`; SDKs take "
    "it as api_key or from OPENAI_API_KEY."
)
_WRONG_KEY = "This API key is not one of this server's. Check it, or ask the operator of the server for one."
_TOO_MANY = (
    "Too many wrong API keys came from this address within a minute. Keys that were right from here before "
    "are served; any other is looked up again in {seconds:.0f} s."
)
Outcome = Literal["refused", "limited"]
OnWrongKey = Callable[[Outcome], None]


class KeyGuard:
    def __init__(self, app: ASGIApp, keys: Keyring, guesses: Guesses, on_wrong_key: OnWrongKey) -> None:
        """`on_wrong_key` is called for each wrong key, and for each that is not looked up."""
        self._app = app
        self._keys = keys
        self._guesses = guesses
        self._on_wrong_key = on_wrong_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket") or _is_public(scope) or _is_of_this_process(scope):
            await self._app(scope, receive, send)
            return
        key = key_in(scope["headers"])
        access = InvalidApiKey(_NO_KEY) if key is None else self._look_up(key, scope)
        if isinstance(access, Access):
            set_caller(scope, caller_of(scope).with_key(access))
            scope.setdefault("state", {})[KEY_NAME] = access.name or access.owner
            await self._app(scope, receive, send)
        else:
            await refuse(access, scope, receive, send)

    def _look_up(self, key: str, scope: Scope) -> Access | ApiError:
        client = scope.get("client")
        address = client[0] if client else ""
        digest = digest_of(key)
        if wait := self._guesses.seconds_to_wait(address, digest):
            self._on_wrong_key("limited")
            return TooManyWrongKeys(_TOO_MANY.format(seconds=max(1.0, wait)), retry_after=wait)
        access = self._keys.find(digest)
        if access is None:
            self._guesses.wrong(address)
            self._on_wrong_key("refused")
            return InvalidApiKey(_WRONG_KEY)
        self._guesses.right(address, digest)
        return access


def key_in(headers: Sequence[tuple[bytes, bytes]]) -> str | None:
    """The key that a client sent; a bearer token comes before the other header."""
    other = None
    for name, value in headers:
        if name == b"authorization":
            scheme, _, token = value.strip().partition(b" ")
            if scheme.lower() == b"bearer" and token.strip():
                return token.strip().decode("utf-8", "surrogateescape")
        elif name == b"x-api-key" and value.strip():
            other = value.strip().decode("utf-8", "surrogateescape")
        elif name == b"sec-websocket-protocol":  # of a page
            other = other or key_among(value.decode("latin-1"))
    return other


def _is_of_this_process(scope: Scope) -> bool:
    """Whether who asks is known already: no client can set the state of a scope."""
    return caller_of(scope).access != OPEN


def _is_public(scope: Scope) -> bool:
    if scope["type"] != "http" or scope["method"] not in _READS:
        return False
    path: str = scope["path"]
    return path in _PUBLIC or path.startswith(_PUBLIC_FOLDERS)
