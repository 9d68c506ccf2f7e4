"""The blocks of one kind of layer: which are free, in use, or kept for their content.

Takes requests for blocks and returns their numbers. A block in use counts its users. An unused block whose
content has a name is kept, and can be found by that name, until its space is needed; the first in line goes
first. It must not know tensors or tokens. Block 0 belongs to no sequence.
"""

import itertools
from collections import OrderedDict
from collections.abc import Mapping

_TAKES = itertools.count()  # no two takes of a process have the same number


class IntegrityError(Exception):
    """The blocks' counts do not add up: a defect of this program."""


class BlockPool:
    def __init__(self, count: int) -> None:
        """`count` includes block 0, so that numbers match the tensors."""
        self.count = count
        self._users = [0]  # of each block that was ever taken
        self._free: dict[int, None] = {}  # taken before, released since, without a name
        self._kept: OrderedDict[int, None] = OrderedDict()  # unused but named; the first goes first
        self._named: dict[bytes, int] = {}
        self._names: dict[int, bytes] = {}
        self.taken: dict[int, int] = {}  # the number of each block's last take: its content is that one's

    @property
    def available(self) -> int:
        """The number of blocks that can be taken: never used, free, or only kept."""
        return self.count - len(self._users) + len(self._free) + len(self._kept)

    @property
    def used(self) -> int:
        return self.count - 1 - self.available

    def find(self, name: bytes) -> int | None:
        return self._named.get(name)

    def holds(self, name: bytes) -> bool:
        return name in self._named

    def is_kept(self, block: int) -> bool:
        """Whether it has no user, so that sharing it makes one block fewer available."""
        return block in self._kept

    def take(self, after: int) -> int:
        """A block for one user. Call it only if one is available. Prefers the block that follows `after` in
        memory: consecutive blocks are read faster."""
        if after + 1 in self._free:
            block = after + 1
            del self._free[block]
        elif len(self._users) < self.count and (after + 1 == len(self._users) or not self._free):
            block = len(self._users)
            self._users.append(0)
        elif self._free:
            block = self._free.popitem()[0]
        else:
            block = self._kept.popitem(last=False)[0]
            del self._named[self._names.pop(block)]
        self._users[block], self.taken[block] = 1, next(_TAKES)
        return block

    def share(self, block: int) -> None:
        """Adds a user to a block that is in use or kept."""
        self._kept.pop(block, None)
        self._users[block] += 1

    def name(self, block: int, name: bytes) -> None:
        """Names a block's content. If another block has that name, `find` keeps returning the other."""
        if name not in self._named and block not in self._names:
            self._named[name] = block
            self._names[block] = name

    def release(self, block: int, *, last: bool = True) -> None:
        """Removes a user. Without users, a named block is kept, to be reused last or first."""
        self._users[block] -= 1
        if self._users[block]:
            return
        if block in self._names:
            self._kept[block] = None
            self._kept.move_to_end(block, last=last)
        else:
            self._free[block] = None

    def check(self, users: Mapping[int, int]) -> None:
        """Raises `IntegrityError` unless each block has exactly these users and is in exactly one place."""
        for block, counted in enumerate(self._users):
            if counted != users.get(block, 0):
                raise IntegrityError(f"Block {block} counts {counted} users, not {users.get(block, 0)}.")
            places = (block in self._free) + (block in self._kept) + (counted > 0)
            if places != int(block > 0):
                raise IntegrityError(f"Block {block} is in {places} of the places free, kept and used.")
        if len(self._users) > self.count or max(users, default=0) >= len(self._users):
            raise IntegrityError("A sequence uses a block that does not exist.")
        if {block: name for name, block in self._named.items()} != self._names:
            raise IntegrityError("Names and blocks do not match.")
        if not self._names.keys() >= self._kept.keys() or self._names.keys() & self._free.keys():
            raise IntegrityError("A kept block has no name, or a free one has.")
