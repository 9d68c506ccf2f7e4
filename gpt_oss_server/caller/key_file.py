"""The file of keys: one key a line, perhaps with a name, limits, tools and models.

An error names the line, never the key.

    # for the web shop; the second key replaces the first, and both are the same owner
    sk-2b7e151628aed2a6  name=shop rpm=600 tpm=200000 tools=python,browser
    sk-9f86d081884c7d65  name=shop rpm=600 tpm=200000 tools=python,browser
    sha256:60303ae22b998861bce3b28f33eec1be758a213c86c93c076dbe9f558c11c752
"""

import base64
import binascii
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from gpt_oss_server.caller.access import Access, KeyLimits, allowed_names
from gpt_oss_server.settings.access import LEAST_PYTHON_MEMORY
from gpt_oss_server.settings.options import Kind, SettingsError, optional, size, whole

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_HASHED = re.compile(r"sha256:([0-9a-fA-F]{64})")
_OWNER_DIGITS = 32
_LEAST_SECRET = 16  # bytes
_LIMITS: dict[str, Kind] = {
    "rpm": optional(whole("COUNT", 1)),
    "tpm": optional(whole("COUNT", 1)),
    "concurrent": optional(whole("COUNT", 1)),
    "background": optional(whole("COUNT", 0)),
    "kernels": optional(whole("COUNT", 0)),
    "memory": optional(size(least=LEAST_PYTHON_MEMORY)),
    "stored": optional(size()),
}


def digest_of(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).digest()


def access_of(digest: bytes, defaults: KeyLimits) -> Access:
    """The access of a key without a name: its owner is derived from its hash."""
    owner = "key-" + hashlib.sha256(b"owner of " + digest).hexdigest()[:_OWNER_DIGITS]
    return Access(owner, None, None, defaults, digest=digest)


def read_keys(
    text: str, place: str, defaults: KeyLimits, tools: Sequence[str], models: Sequence[str] | None = None
) -> dict[bytes, Access]:
    """`place` names the file in errors; `tools`, `models`: what a key may be allowed, None: not known yet."""
    keys: dict[bytes, Access] = {}
    named: dict[str, Access] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        where = f"{place}, line {number}"
        access = _read_line(line.split(), where, defaults)
        for field, known in (("tools", tools), ("models", models)):
            named_here: frozenset[str] = getattr(access, field) or frozenset()
            if known is not None and (unknown := sorted(named_here - frozenset(known))):
                must = f"must be all, none, or a list out of {', '.join(known)}"
                raise SettingsError(f"{where}: {field} {must}, not {unknown[0]!r}.")
        if access.digest in keys:
            raise SettingsError(f"{where}: this key is in an earlier line too. Remove one of them.")
        earlier = named.setdefault(access.owner, access)
        if replace(earlier, digest=b"") != replace(access, digest=b""):
            problem = f"an earlier key named {access.name} has other limits, tools or models."
            raise SettingsError(f"{where}: {problem} Keys of one name are one owner, so give them the same.")
        keys[access.digest] = access
    return keys


def _read_line(words: list[str], where: str, defaults: KeyLimits) -> Access:
    key, *fields = words
    hashed = _HASHED.fullmatch(key)
    access = access_of(bytes.fromhex(hashed[1]) if hashed else digest_of(key), defaults)
    seen: set[str] = set()
    for word in fields:
        name, equals, value = word.partition("=")
        read = _FIELDS.get(name)
        if not equals or read is None:
            must = f"each word must be FIELD=VALUE with one of the fields {', '.join(_FIELDS)}"
            raise SettingsError(f"{where}: after the key, {must}.")
        if name in seen:
            raise SettingsError(f"{where}: {name} is set twice.")
        seen.add(name)
        access = read(access, name, value, where)
    return access


Reader = Callable[[Access, str, str, str], Access]


def _read_name(access: Access, field: str, value: str, where: str) -> Access:
    if not _NAME.fullmatch(value) or value.startswith("key-"):
        must = "must have 1 to 64 letters, digits, `_`, `.` or `-`, and must not begin with `key-`"
        raise SettingsError(f"{where}: a name {must}.")
    return replace(access, owner=value, name=value)


def _read_allowed(access: Access, field: str, value: str, where: str) -> Access:
    names: Any = allowed_names(value.split(","))
    return replace(access, **{field: names})


def _read_webhook(access: Access, field: str, value: str, where: str) -> Access:
    if not value.startswith(("https://", "http://")):
        raise SettingsError(f"{where}: {field} must be an address such as https://example.com/hook.")
    return replace(access, webhook=value)


def decoded_secret(text: str) -> bytes | None:
    """The secret of a webhook, as OpenAI's SDKs take it; None: it is none."""
    try:
        secret = base64.b64decode(text.removeprefix("whsec_"), validate=True)
    except binascii.Error:
        return None
    return secret if len(secret) >= _LEAST_SECRET else None


def _read_secret(access: Access, field: str, value: str, where: str) -> Access:
    if (secret := decoded_secret(value)) is None:
        raise SettingsError(f"{where}: {field} must be `whsec_` and 16 bytes or more in base64.")
    return replace(access, webhook_secret=secret)


def _read_limit(access: Access, field: str, value: str, where: str) -> Access:
    kind = _LIMITS[field]
    with suppress(ValueError):
        limit: Any = kind.parse(value)
        if kind.holds(limit):
            return replace(access, limits=replace(access.limits, **{field: limit}))
    raise SettingsError(f"{where}: {field} {kind.must}, not {value!r}.")


_FIELDS: Mapping[str, Reader] = {
    "name": _read_name,
    "tools": _read_allowed,
    "models": _read_allowed,
    "webhook": _read_webhook,
    "webhook_secret": _read_secret,
    **dict.fromkeys(_LIMITS, _read_limit),
}
