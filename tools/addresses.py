"""Which network addresses a tool may reach on a stranger's word.

In goes a host name or an IP address that a client or a model wrote; out come addresses that are all public,
to be connected to as they are (resolving the name again would let it answer differently). Nothing here opens
a connection or knows of HTTP: callers inject the resolver, and decide what a refusal means.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Every address of a host, as text. Raises OSError where the name does not resolve."""

# What `is_global` passes, or passed in some Python releases, though a stranger has no business there.
_ALSO_REFUSED = tuple(
    ip_network(block)
    for block in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carrier NAT; a cloud's metadata service lives at 100.100.100.200
        "168.63.129.16/32",  # a cloud's host agent, on an address that looks public
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "240.0.0.0/4",
        "::/96",  # IPv4-compatible, long deprecated
        "64:ff9b:1::/48",  # local-use NAT64
        "100::/64",
        "2001::/23",  # protocol assignments, Teredo among them
        "2001:db8::/32",
        "3fff::/20",
        "5f00::/16",
        "fec0::/10",
    )
)
_NAT64 = ip_network("64:ff9b::/96")


class AddressRefused(Exception):
    """A host may not be reached. The sentence names the host as it was asked for, and no address."""


def is_public(address: str) -> bool:
    """Whether an IP address, in text, belongs to the public internet. What is no address is not public."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return False
    return all(_is_public(each) for each in (parsed, *_embedded(parsed)))


def _is_public(address: IPv4Address | IPv6Address) -> bool:
    if isinstance(address, IPv6Address) and (address.ipv4_mapped is not None or address in _NAT64):
        return True  # judged by the address inside, which is listed beside it
    if not address.is_global or address.is_multicast or address.is_reserved or address.is_unspecified:
        return False
    return not any(address in block for block in _ALSO_REFUSED if block.version == address.version)


def _embedded(address: IPv4Address | IPv6Address) -> list[IPv4Address]:
    """IPv4 addresses that an IPv6 address carries to a gateway: mapped, 6to4 and NAT64."""
    if isinstance(address, IPv4Address):
        return []
    found = [each for each in (address.ipv4_mapped, address.sixtofour) if each is not None]
    if address in _NAT64:
        found.append(IPv4Address(int(address) & 0xFFFFFFFF))
    return found


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


async def resolve_allowed(
    host: str, port: int, *, resolver: Resolver = system_resolver, allow_private: bool = False
) -> list[str]:
    """The addresses to connect to: each of them public, or none at all.

    One private address among public ones refuses the host: which of them a connection would take is chance,
    and a name that mixes them is a known way to get past such checks.
    """
    try:
        addresses = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise AddressRefused(f"The host {host!r} could not be resolved.") from error
    if not addresses:
        raise AddressRefused(f"The host {host!r} has no address.")
    if not allow_private and not all(is_public(address) for address in addresses):
        raise AddressRefused(f"The host {host!r} has an address that is not on the public internet.")
    return addresses
