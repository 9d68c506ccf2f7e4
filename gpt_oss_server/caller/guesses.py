"""Wrong keys by the address that sends them: a guesser is slowed, and learns nothing meanwhile.

An address has an allowance of wrong keys, which grows again steadily. Without any left, a key is only looked
up if it was right from there before: a guess gets the same answer whether it is right or wrong, and clients
that share an address with the guesser are served on. Memory is bounded, whatever is sent.
"""

import ipaddress
import logging
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

_MOST = 10_000  # addresses with wrong keys, and pairs of an address and a right key
_NETWORK_BITS = 64  # of an IPv6 address: one client has all the others
_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Guesser:
    """An address that sent wrong keys."""

    left: float  # of its allowance, at a moment
    at: float
    is_reported: bool = False


class Guesses:
    def __init__(self, per_minute: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`per_minute`: wrong keys of one address; None: they are not counted."""
        self._per_minute = per_minute
        self._per_second = (per_minute or 0) / 60
        self._clock = clock
        self._wrong: OrderedDict[str, _Guesser] = OrderedDict()  # the longest unused first
        self._right: OrderedDict[tuple[str, bytes], None] = OrderedDict()

    def seconds_to_wait(self, address: str, digest: bytes) -> float:
        """0: the key of this digest may be looked up."""
        if not self._wrong:  # as nearly always
            return 0.0
        network = _network_of(address)
        guesser = self._grown(network)
        if guesser is None or guesser.left >= 1 or (network, digest) in self._right:
            return 0.0
        return (1 - guesser.left) / self._per_second

    def right(self, address: str, digest: bytes) -> None:
        if self._per_minute is not None:
            _renew(self._right, (_network_of(address), digest), None)

    def wrong(self, address: str) -> None:
        if self._per_minute is None:
            return
        network = _network_of(address)
        guesser = self._grown(network) or _Guesser(self._per_minute, self._clock())
        guesser.left -= 1
        _renew(self._wrong, network, guesser)
        if guesser.left < 1 and not guesser.is_reported:
            guesser.is_reported = True
            problem = "Wrong API keys from %s: %d within a minute."
            effect = "Until it sends fewer, most of its keys get 429 and are not looked up."
            _log.warning(f"{problem} {effect}", network, self._per_minute)

    def _grown(self, network: str) -> _Guesser | None:
        """None if nothing of its allowance is used."""
        if (guesser := self._wrong.get(network)) is None:
            return None
        now, most = self._clock(), self._per_second * 60
        guesser.left = min(most, guesser.left + (now - guesser.at) * self._per_second)
        guesser.at = now
        if guesser.left >= most:
            del self._wrong[network]
            return None
        return guesser


def _renew(entries: OrderedDict[_Key, _Value], key: _Key, value: _Value) -> None:
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > _MOST:
        entries.popitem(last=False)


@lru_cache(maxsize=1024)
def _network_of(address: str) -> str:
    """The address itself; of an IPv6 address, its network, unless it stands for an IPv4 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed, _NETWORK_BITS), strict=False))
