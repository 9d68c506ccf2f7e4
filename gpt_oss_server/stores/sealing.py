"""Sealed texts: clients keep them for the server and cannot read them. It must not know what it seals.

Each text has its own AES-256-GCM key, derived from the server's key and 16 random bytes that travel with the
text, so that no nonce is used twice, whatever the number of texts.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import sys
import tempfile
from array import array
from collections.abc import Callable, Iterable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from gpt_oss_server.settings import SettingsError
from inference.paths import UnknownHome, expanded_path

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_VERSION = b"\x01"
_SALT = 16
_NONCE = bytes(12)  # constant, as each key is used once
_FILE = "sealing.key"
_LEAST = 32  # bytes of a key file; a generated file has twice as many, in hexadecimal
_log = logging.getLogger(__name__)


class Sealer:
    def __init__(self, secret: bytes | Callable[[], bytes]) -> None:
        """A function is called at first use."""
        self._secret = secret

    @cached_property
    def _key(self) -> bytes:
        return hashlib.sha256(self._secret if isinstance(self._secret, bytes) else self._secret()).digest()

    def of(self, owner: str) -> Sealer:
        """A sealer whose texts only this owner's can open; "" is the owner of this one."""
        if not owner:
            return self
        return Sealer(lambda: hmac.digest(self._key, b"owner " + owner.encode(), "sha256"))

    def seal(self, purpose: str, content: bytes) -> str:
        salt = secrets.token_bytes(_SALT)
        sealed = self._cipher(purpose, salt).encrypt(_NONCE, content, _VERSION)
        return base64.urlsafe_b64encode(_VERSION + salt + sealed).decode()

    def open(self, purpose: str, sealed: str) -> bytes | None:
        """The sealed bytes; None if the text was changed, or has another key or purpose."""
        from cryptography.exceptions import InvalidTag

        try:
            decoded = base64.b64decode(sealed.encode("ascii"), altchars=b"-_", validate=True)
        except (UnicodeEncodeError, binascii.Error):
            return None
        salt, content = decoded[1 : 1 + _SALT], decoded[1 + _SALT :]
        if decoded[:1] != _VERSION or len(salt) < _SALT:
            return None
        try:
            return self._cipher(purpose, salt).decrypt(_NONCE, content, _VERSION)
        except InvalidTag:
            return None

    def _cipher(self, purpose: str, salt: bytes) -> AESGCM:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # takes 40 ms, so only when needed

        return AESGCM(hmac.digest(self._key, salt + purpose.encode(), "sha256"))


def packed_tokens(tokens: Iterable[int]) -> bytes:
    """Four bytes for each, little-endian."""
    return _in_order(array("I", tokens)).tobytes()


def unpacked_tokens(packed: bytes) -> tuple[int, ...]:
    tokens = array("I")
    tokens.frombytes(packed)
    return tuple(_in_order(tokens))


def _in_order(tokens: array[int]) -> array[int]:
    if sys.byteorder == "big":
        tokens.byteswap()
    return tokens


def server_sealer(key_file: str | None) -> Sealer:
    """A sealer with the key in `key_file`, else in the user's state folder. It creates a missing file.

    A `key_file` that cannot be used is an error. The state folder is read at first use; without a usable one,
    the key lasts as long as the server runs.
    """
    return Sealer(_own_key if key_file is None else _named_key(key_file))


def _own_key() -> bytes:
    try:
        return _read_or_make(state_folder() / _FILE)
    except (OSError, SettingsError, RuntimeError) as error:  # RuntimeError: no home folder
        problem = (
            "The key for sealed items cannot be saved (%s), so items stay readable until this server ends."
        )
        _log.warning(f"{problem} Use --sealing-key-file to choose a place for the key.", error)
        return secrets.token_bytes(_LEAST)


def saved_secret() -> bytes | None:
    """The key in the user's state folder, if an earlier server has saved one."""
    try:
        content = (state_folder() / _FILE).read_bytes().strip()
    except (OSError, RuntimeError):  # RuntimeError: no home folder
        return None
    return content if len(content) >= _LEAST else None


def new_secret() -> bytes:
    return secrets.token_hex(_LEAST).encode()


def _named_key(key_file: str) -> bytes:
    """Expands `~`: a shell does it in `--sealing-key-file ~/key`, but not in `=~/key` or in a variable."""
    try:
        return _read_or_make(expanded_path(key_file, "file"))
    except UnknownHome as error:
        raise SettingsError(f"--sealing-key-file: {error}") from error
    except OSError as error:
        problem = f"{key_file} cannot be read or created: {error.strerror or error}."
        advice = "Name a file in a folder where this user may write."
        raise SettingsError(f"--sealing-key-file: {problem} {advice}") from error


def state_folder() -> Path:
    base = os.environ.get("XDG_STATE_HOME")
    return (Path(base) if base else Path.home() / ".local" / "state") / "gpt-oss-server"


def _read_or_make(path: Path) -> bytes:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        _make(path)
        content = path.read_bytes()
    if len(content.strip()) < _LEAST:
        raise SettingsError(
            f"The key file {path} must hold at least {_LEAST} characters. Generate one with "
            "`openssl rand -hex 32`."
        )
    return content.strip()


def _make(path: Path) -> None:
    """Creates the file atomically, so that servers that start simultaneously all use the first one's key."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    handle, name = tempfile.mkstemp(dir=path.parent)  # for its owner only
    try:
        with os.fdopen(handle, "w") as file:
            file.write(new_secret().decode() + "\n")
        os.link(name, path)
    except FileExistsError:
        pass
    finally:
        os.unlink(name)
