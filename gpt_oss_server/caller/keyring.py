"""The keys of a server: those of `--api-key` and those of `--api-key-file`, which may change.

Looking up a key takes the same time whether it is right, nearly right or wrong: what is compared are keyed
hashes of hashes, of which no client knows any part.
"""

import asyncio
import hmac
import logging
import secrets
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from gpt_oss_server.caller.access import Access, KeyLimits
from gpt_oss_server.caller.key_file import access_of, digest_of, read_keys
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.sources import file_of
from gpt_oss_server.stores.repeated import Repeated

_LOOK_SECONDS = 1.0  # between looks at the file
_NO_KEY = Access(digest=secrets.token_bytes(32))
_log = logging.getLogger(__name__)
_Version = tuple[int, int, int]


class Keyring:
    def __init__(
        self, settings: Settings, tools: Sequence[str] = (), models: Sequence[str] | None = None
    ) -> None:
        """`tools`, `models`: what a key may be allowed; None: not known yet. Raises `SettingsError`."""
        self._tools, self._models = tools, models
        self._defaults = KeyLimits(  # of a key that sets none of its own
            rpm=settings.key_requests_per_minute,
            tpm=settings.key_tokens_per_minute,
            concurrent=settings.key_concurrent,
            background=settings.key_background_runs,
            kernels=settings.key_python_sessions,
            memory=settings.key_python_memory,
            stored=settings.key_stored_bytes,
        )
        if any(not key.isprintable() or len(key.split()) != 1 for key in settings.api_key):
            raise SettingsError("--api-key: a key must have no spaces and no control characters.")
        given = map(digest_of, settings.api_key)
        self._given = {digest: access_of(digest, self._defaults) for digest in given}
        named = settings.api_key_file
        self._file = None if named is None else file_of(named, "--api-key-file")
        self._secret = secrets.token_bytes(32)
        self._keys: dict[bytes, Access] = {}
        self._version: _Version | None = None
        reload, problem = partial(asyncio.to_thread, self.reload), "The API keys cannot be reloaded"
        self._repeated = Repeated(reload, _LOOK_SECONDS, problem)
        of_file: dict[bytes, Access] = {}
        if self._file is not None:
            self._version, of_file = _version(self._file), self._read(self._file)
        self._take(of_file)

    @property
    def is_open(self) -> bool:
        """Whether the server asks for no key. This never changes while it runs."""
        return not self._keys

    @property
    def owners(self) -> list[str]:
        """The owner of each key."""
        return [access.owner for access in self._keys.values()]

    def webhooks(self, owner: str) -> dict[str, bytes]:
        """The addresses that are told of the owner's events, with their secrets."""
        own = (key for key in self._keys.values() if key.owner == owner and key.webhook)
        return {str(key.webhook): key.webhook_secret for key in own}

    def current(self, access: Access) -> Access | None:
        """The access of the same key as the keys are now; None if the key has been removed."""
        return access if self.is_open or not access.digest else self.find(access.digest)

    def start(self) -> None:
        """Call it in the event loop: from now on, changes of the file take effect."""
        if self._file is not None:
            self._repeated.start()

    async def close(self) -> None:
        await self._repeated.close()

    def reload(self) -> None:
        """Reads the file again if it has changed. A file with a mistake changes nothing."""
        if self._file is None or (version := _version(self._file)) == self._version:
            return
        self._version = version
        try:
            of_file = self._read(self._file)
        except SettingsError as error:
            _log.error("The API keys stay as they were: %s", error)
            return
        self._take(of_file)
        _log.info("Loaded %d API keys from %s.", len(of_file), self._file)

    def find(self, digest: bytes) -> Access | None:
        access = self._keys.get(self._place(digest), _NO_KEY)
        return access if hmac.compare_digest(access.digest, digest) else None

    def _place(self, digest: bytes) -> bytes:
        return hmac.digest(self._secret, digest, "sha256")

    def _take(self, of_file: Mapping[bytes, Access]) -> None:
        keys = {**self._given, **of_file}
        self._keys = {self._place(digest): access for digest, access in keys.items()}

    def _read(self, file: Path) -> dict[bytes, Access]:
        place = f"--api-key-file {file}"
        try:
            text = file.read_text("utf-8-sig")
        except UnicodeDecodeError:
            raise SettingsError(f"{place} is not UTF-8 text.") from None
        except OSError as error:
            raise SettingsError(f"{place} cannot be read: {error.strerror or error}.") from error
        keys = read_keys(text, place, self._defaults, self._tools, self._models)
        if not keys:
            advice = "Put one key on a line, or leave the setting out for a server without keys."
            raise SettingsError(f"{place} has no key. {advice}")
        return keys


def _version(file: Path) -> _Version | None:
    try:
        state = file.stat()
    except OSError:
        return None
    return state.st_mtime_ns, state.st_size, state.st_ino
