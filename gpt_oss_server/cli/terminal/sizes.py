"""Sizes as a person reads them."""

from __future__ import annotations

_UNITS = (("GB", 10**9), ("MB", 10**6), ("kB", 10**3))


def shown_size(count: int) -> str:
    """In the decimal units of the hub's pages and of disks: 13.8 GB."""
    for unit, scale in _UNITS:
        if count >= scale:
            return f"{count / scale:.1f} {unit}"
    return f"{count} bytes"
