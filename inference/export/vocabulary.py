"""A byte-pair vocabulary in the form that llama.cpp reads: spelt tokens and the merges that make them.

Takes the bytes of each ordinary token, in the order of their ranks, and the names of the special ones. It
knows no file format.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

_PRINTABLE = (*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1))


@dataclass(frozen=True, slots=True)
class Vocabulary:
    ordinary: Sequence[bytes]  # by id, which is also the rank
    special: Mapping[int, str]


def _spelling() -> dict[int, str]:
    """A visible character for each byte, as GPT-2's tokenizer introduced it."""
    spelt = {byte: chr(byte) for byte in _PRINTABLE}
    others = (byte for byte in range(256) if byte not in spelt)
    return spelt | {byte: chr(256 + number) for number, byte in enumerate(others)}


_SPELT = _spelling()


def spelt(token: bytes) -> str:
    return "".join(_SPELT[byte] for byte in token)


def byte_merges(ordinary: Sequence[bytes]) -> Iterator[str]:
    """The two parts of each token of several bytes, spelt, in the order in which merging prefers them."""
    ranks = {token: rank for rank, token in enumerate(ordinary)}
    for rank, token in enumerate(ordinary):
        if len(token) > 1:
            first, second = _parts(token, rank, ranks)
            yield f"{spelt(first)} {spelt(second)}"


def _parts(token: bytes, rank: int, ranks: Mapping[bytes, int]) -> tuple[bytes, bytes]:
    """Merges a token's bytes by all earlier ranks, which leaves its last two parts."""
    parts = [token[at : at + 1] for at in range(len(token))]
    while len(parts) > 2:
        best, first = rank, -1
        for at in range(len(parts) - 1):
            merged = ranks.get(parts[at] + parts[at + 1], rank)
            if merged < best:
                best, first = merged, at
        if first < 0:
            raise ValueError(f"token {rank} cannot be made of two earlier ones")
        parts[first : first + 2] = [parts[first] + parts[first + 1]]
    return parts[0], parts[1]
