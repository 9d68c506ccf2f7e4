"""Normalises or refuses URLs: only plain http(s) addresses pass, because the list of tricks has no end."""

import re
from typing import Final, TypeGuard

import httpx

from tools.addresses import is_literal
from tools.browser.pages.document import PageError
from tools.tool import encodable

MAX_URL_CHARS: Final = 4_096

_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*")


def read_url(text: str) -> httpx.URL:
    """The address in the one spelling that is then resolved, sent and shown; `PageError` for any odd one.

    The parser is the HTTP client's own, so that the check and the connection cannot disagree.
    """
    if len(text) > MAX_URL_CHARS:
        raise PageError(f"This address is longer than {MAX_URL_CHARS} characters.")
    if re.search(r"[\x00-\x20\x7f\\]", text):
        raise PageError("This address holds white space, a control character or a backslash.")
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, ValueError, UnicodeError) as error:
        raise PageError(f"This address is not valid: {error}.") from error
    if url.scheme not in ("http", "https"):
        raise PageError("Only http and https addresses can be opened.")
    if url.userinfo or "@" in url.netloc.decode("ascii", "replace"):
        raise PageError("Addresses with a user name or password in them cannot be opened.")
    if url.port is not None and not 0 < url.port < 65_536:
        raise PageError(f"This address is not valid: there is no port {url.port}.")
    checked = url.copy_with(host=_host(url), fragment=None)
    try:
        checked.host  # noqa: B018 – decodes international names, and raises for some that the parser took
    except UnicodeError as error:
        raise PageError("This address is not valid: its international host name is malformed.") from error
    return checked


def is_web(url: object) -> TypeGuard[str]:
    """Whether a search service's URL is an http(s) address that can be shown."""
    return isinstance(url, str) and url.startswith(("http://", "https://")) and encodable(url) == url


def _host(url: httpx.URL) -> str:
    host = url.raw_host.decode("ascii", "replace").lower()
    if ":" in host:
        if "%" in host or not is_literal(host):
            raise PageError("This address is not valid: its host is not an IPv6 address.")
        return host
    # "example.com." is the same name, spelt to slip through comparisons.
    host = host.removesuffix(".")
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise PageError("This address is not valid: it has no usable host name.")
    # Some parser takes anything that ends in a number for an IPv4 address: 2130706433, 0x7f.1, 127.1.
    if _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]) and not _IPV4.fullmatch(host):
        raise PageError("This address spells an IP address in an unusual way and is not opened.")
    return host
