"""A folder of packs: files that hold blocks of keys and values, with their names and checksums.

Takes blocks by their names and returns them exactly, or not at all: if a file is damaged, foreign or missing,
its blocks are computed. A pack is written elsewhere, renamed, and never changed, so that several servers may
share a folder, and each may end at any moment. A file holds numbers alone, and only its user can read it.

    FOLDER/IDENTITY/OWNER/HASH.kv    IDENTITY names all that decides values but tokens; HASH is the head's
"""

import json
import logging
import os
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy

from inference.engine import CheckpointError
from inference.paths import replacing

Key = tuple[int, bytes]  # the kind of layer and the block's name

MAGIC = b"gosskv1\n"
LENGTH = 4  # bytes of the head's length, after the magic
LEFT_OVER = 3600.0  # seconds after which an unfinished file counts as left by a killed process
SUMMED = 2048  # bytes of a block that have one sum
TRIMMED = 0.9  # of the limit, so that not every write deletes
PINNED = 100 * 365 * 86_400.0  # seconds by which a pinned pack's last use lies ahead: it goes last
WARN_EVERY = 60.0  # seconds between two lines of the log, and before writing is tried again

logger = logging.getLogger(__name__)


class Stored(NamedTuple):
    path: Path
    offset: int
    checksum: int


class Packs:
    def __init__(self, folder: Path, identity: str, block_bytes: Sequence[int], limit: int) -> None:
        """Raises `CheckpointError` if the folder cannot be used. `limit`: bytes of all packs in it."""
        self._folder, self._limit, self._sizes = folder, limit, block_bytes
        self._own = folder / identity
        self._stored: dict[Key, Stored] = {}
        self._known: dict[Path, list[Key]] = {}
        self._silent_until = 0.0
        self.bytes = 0
        try:
            self._own.mkdir(parents=True, exist_ok=True)
            self._own.chmod(0o700)
            with tempfile.TemporaryFile(dir=self._own):
                self.refresh()
        except OSError as error:
            raise CheckpointError(
                f"--cache-dir: {folder} cannot be used: {error}. Choose a folder that this user can write to."
            ) from error

    def holds(self, key: Key) -> bool:
        return key in self._stored

    # Writing ------------------------------------------------------------------------------------------

    def write(self, salt: str, blocks: Sequence[tuple[Key, Any]]) -> int:
        """Writes one pack; returns its bytes, 0 if it could not be written. The contents are buffers."""
        if not blocks or time.monotonic() < self._silent_until:
            return 0
        listed = [(kind, name.hex(), checksum(name, content)) for (kind, name), content in blocks]
        head = json.dumps({"identity": self._own.name, "blocks": listed}).encode()
        parts = [MAGIC, len(head).to_bytes(LENGTH, "little"), head, *(content for _, content in blocks)]
        size = sum(memoryview(part).nbytes for part in parts)
        if size > self._limit:
            return 0
        if self.bytes + size > self._limit:
            self.trim(size)
        path = self._own / owner_folder(salt) / f"{_digest(head)}.kv"
        try:
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with replacing(path) as file:
                file.writelines(parts)
        except OSError as error:
            self._silent_until = time.monotonic() + WARN_EVERY
            logger.warning("The cache in %s takes no blocks for a minute: %s.", self._folder, error)
            return 0
        self._add(path, head)
        self.bytes += size
        return size

    def trim(self, room: int = 0) -> None:
        """Deletes the packs that were used longest ago until the limit leaves this room."""
        found = sorted((stat.st_mtime, stat.st_size, path) for path, stat in _packs(self._folder))
        total, most = sum(size for _, size, _ in found), (self._limit - room) * TRIMMED
        for _, size, path in found:
            if total <= most:
                break
            self._remove(path)
            total -= size
        self.bytes = total

    # Reading ------------------------------------------------------------------------------------------

    def read(self, key: Key, into: memoryview) -> bool:
        """Fills the buffer, or returns false: the block is gone or damaged."""
        stored = self._stored.get(key)
        if stored is None:
            return False
        try:
            with stored.path.open("rb", buffering=0) as file:
                file.seek(stored.offset)
                whole = file.readinto(into) == into.nbytes
        except OSError:
            self._forget(stored.path)
            return False
        if not whole or checksum(key[1], into) != stored.checksum:
            self._damaged(stored.path)
            return False
        return True

    def touch(self, keys: Iterable[Key], ahead: float = 0.0) -> None:
        """Records that these blocks, in the order of a prompt, were used: its beginning goes last. `ahead` is
        added to the time: with `PINNED`, they go after all others."""
        paths = dict.fromkeys(stored.path for key in keys if (stored := self._stored.get(key)))
        now = time.time() + ahead
        for at, path in enumerate(paths):
            with suppress(OSError):
                if path.stat().st_mtime < now:
                    os.utime(path, (now, now - at * 1e-3))

    def refresh(self) -> None:
        """Takes in what other servers wrote and deleted."""
        present = {path: stat.st_size for path, stat in _packs(self._folder)}
        for path in self._known.keys() - present.keys():
            self._forget(path)
        for path in present.keys() - self._known.keys():
            if path.parent.parent == self._own:
                self._read_head(path, present[path])
        self.bytes = sum(present.values())

    def _read_head(self, path: Path, size: int) -> None:
        try:
            with path.open("rb") as file:
                start = file.read(len(MAGIC) + LENGTH)
                head = file.read(int.from_bytes(start[len(MAGIC) :], "little"))
        except OSError:
            return  # it has just been deleted
        whole = start.startswith(MAGIC) and _digest(head) == path.stem
        # Of this identity, and not only copied here; and no byte more or less than its blocks take.
        if not whole or json.loads(head)["identity"] != self._own.name or self._add(path, head) != size:
            self._damaged(path)

    def _add(self, path: Path, head: bytes) -> int:
        """Returns the size that the file must have."""
        offset, keys = len(MAGIC) + LENGTH + len(head), []
        for kind, name, sum_ in json.loads(head)["blocks"]:
            keys.append(key := (kind, bytes.fromhex(name)))
            self._stored.setdefault(key, Stored(path, offset, sum_))
            offset += self._sizes[kind]
        self._known[path] = keys
        return offset

    def _damaged(self, path: Path) -> None:
        logger.warning("%s is damaged: it is deleted, and its blocks are computed again.", path)
        self._remove(path)

    def _remove(self, path: Path) -> None:
        with suppress(OSError):  # another server was faster, or may not
            path.unlink()
        self._forget(path)

    def _forget(self, path: Path) -> None:
        for key in self._known.pop(path, ()):
            if (stored := self._stored.get(key)) and stored.path == path:
                del self._stored[key]


def owner_folder(salt: str) -> str:
    """The first word of a salt names whose the blocks are."""
    owner = salt.partition(" ")[0].encode("utf-8", "surrogatepass")
    return blake2b(owner, digest_size=16, person=b"owner").hexdigest()


def delete_blocks_of(folder: Path, owner: str) -> int:
    """Deletes what a folder holds of an owner; returns the number of packs."""
    count = 0
    for held in folder.glob(f"*/{owner_folder(owner)}"):
        count += sum(1 for _ in held.glob("*.kv"))
        shutil.rmtree(held, ignore_errors=True)
    return count


def _digest(head: bytes) -> str:
    return blake2b(head, digest_size=16).hexdigest()


def checksum(name: bytes, content: Any) -> int:
    """Of the sums of its parts, which take a fifth of the time of a CRC of its bytes."""
    data = numpy.frombuffer(content, dtype=numpy.uint8)
    whole = len(data) // SUMMED * SUMMED
    sums = data[:whole].view(numpy.uint64).reshape(-1, SUMMED // 8).sum(1)
    return zlib.crc32(data[whole:].data, zlib.crc32(sums.data, zlib.crc32(name)))


def _packs(folder: Path) -> Iterator[tuple[Path, os.stat_result]]:
    for path in folder.glob("*/*/*.*"):
        with suppress(OSError):  # deleted meanwhile
            stat = path.stat()
            if path.suffix == ".kv":
                yield path, stat
            elif time.time() - stat.st_mtime > LEFT_OVER:  # of a server that was killed
                path.unlink()
