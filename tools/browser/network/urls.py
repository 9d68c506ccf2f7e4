"""URLs that the model or a page chose, in one spelling or refused: no network, no names resolved.

What is not plainly an http(s) address is refused: the list of what is allowed is short, the list of tricks
is not. Which IP addresses may be reached is decided in `tools.addresses`.
"""

from __future__ import annotations

import re
from typing import Final, TypeGuard

import httpx

from tools.addresses import is_literal
from tools.browser.pages.errors import PageError
from tools.outputs import encodable

MAX_URL_CHARS: Final = 4_096

_IPV4: Final = re.compile(r"(?:(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])(?:\.(?!$)|$)){4}")
_NUMERIC_LABEL: Final = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_HOST: Final = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?:\.(?!-)[a-z0-9_-]{1,63})*")


def read_url(text: str) -> httpx.URL:
    """The address in the one spelling that is then resolved, sent and shown; PageError for any odd one.

    The parser is the client's own, so that what is checked and what is connected to cannot differ.
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
    return url.copy_with(host=_host(url), fragment=None)


def is_web(url: object) -> TypeGuard[str]:
    """Whether it is an http(s) address that can be shown at all, for what a search service says is one."""
    return isinstance(url, str) and url.startswith(("http://", "https://")) and encodable(url) == url


def _host(url: httpx.URL) -> str:
    host = url.raw_host.decode("ascii", "replace").lower()
    if ":" in host:
        if "%" in host or not is_literal(host):
            raise PageError("This address is not valid: its host is not an IPv6 address.")
        return host
    host = host.removesuffix(
        "."
    )  # "example.com." is the same name, spelled so as to slip through comparisons
    if not _HOST.fullmatch(host) or len(host) > 253:
        raise PageError("This address is not valid: it has no usable host name.")
    # Whatever ends in a number is an IPv4 address to some parser: 2130706433, 0x7f.1, 0177.0.0.1, 127.1.
    if _NUMERIC_LABEL.fullmatch(host.rpartition(".")[2]) and not _IPV4.fullmatch(host):
        raise PageError("This address spells an IP address in an unusual way and is not opened.")
    return host
