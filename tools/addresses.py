"""Which network addresses are of this machine, and which a tool may reach when another chose the host.

Callers must connect to the addresses that were checked: resolving the name again could give others.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

Resolver = Callable[[str, int], Awaitable[list[str]]]
"""Every address of a host, as text. Raises OSError where the name does not resolve."""

# Refused in addition to what `is_global` refuses, which differs between Python's releases.
_REFUSED_V4 = tuple(
    IPv4Network(block)
    for block in (
        "0.0.0.0/8",
        "100.64.0.0/10",  # carriers' NAT; a cloud's metadata service lives at 100.100.100.200
        "168.63.129.16/32",  # a cloud's host agent, on an address that looks public
        "192.0.0.0/24",
        "192.88.99.0/24",  # 6to4 relays
        "198.18.0.0/15",
        "224.0.0.0/3",  # multicast, reserved, broadcast
    )
)
# All forms that carry an IPv4 address to a gateway (mapped, compatible, NAT64) lie outside of it.
_GLOBAL_UNICAST_V6 = IPv6Network("2000::/3")
# Protocol assignments (Teredo among them), documentation, 6to4 (an IPv4 address inside).
_REFUSED_V6 = tuple(map(IPv6Network, ("2001::/23", "2001:db8::/32", "3fff::/20", "2002::/16")))
_ISATAP = (0x00005EFE, 0x02005EFE)  # an IPv4 address in the interface's half


class AddressRefused(Exception):
    """A host may not be reached. The message names the host as it was requested, and no address."""


def is_literal(host: str) -> bool:
    """Whether a host spells out an IP address."""
    return _parsed(host) is not None


def _parsed(address: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(address)
    except ValueError:
        return None


def is_public(address: str) -> bool:
    """Whether an IP address, as text, belongs to the public internet. False for anything else."""
    parsed = _parsed(address)
    if parsed is None or not parsed.is_global or parsed.is_multicast or parsed.is_reserved:
        return False
    if isinstance(parsed, IPv4Address):
        return not any(parsed in block for block in _REFUSED_V4)
    return (
        parsed in _GLOBAL_UNICAST_V6
        and not any(parsed in block for block in _REFUSED_V6)
        and (int(parsed) >> 32) & 0xFFFFFFFF not in _ISATAP
    )


async def system_resolver(host: str, port: int) -> list[str]:
    loop = asyncio.get_running_loop()
    entries = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in entries))


async def resolve_allowed(
    host: str, port: int, *, resolver: Resolver = system_resolver, allow_private: bool = False
) -> list[str]:
    """The addresses to connect to, all of them public. Otherwise raises `AddressRefused`.

    One private address among public ones refuses the host: mixing them is a known way past such checks.
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


def is_of_this_machine(host: str) -> bool:
    """Whether only this machine reaches a host, which is a name or an address."""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    parsed = _parsed(host)
    return parsed is not None and parsed.is_loopback
