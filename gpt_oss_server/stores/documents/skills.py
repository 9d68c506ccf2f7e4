"""Skills in a database: versions of bundles, each stored like a part of a file.

Takes bundles of an owner. Returns records of skills; `Files` reads the bundles. A version exists once its
skill's record names it: what a crash leaves before that expires.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from gpt_oss_server.stores.sql.codec import from_bytes, key_of, to_bytes
from gpt_oss_server.stores.sql.database import Transaction
from gpt_oss_server.stores.sql.owned import LIVE, Owned

ARRIVING = 3600  # seconds after which a bundle that belongs to no skill is deleted
_IS_SKILL = f"kind = 'skill' AND {LIVE}"


@dataclass(frozen=True, slots=True)
class Version:
    id: str  # the bundle's, among the files
    version: str
    name: str
    description: str
    created_at: int


@dataclass(frozen=True, slots=True)
class Skill:
    id: str
    created_at: int
    default: str  # version
    last: int  # the number of the newest version that there ever was
    versions: Sequence[Version]  # the oldest first

    def find(self, version: str | None) -> Version | None:
        """A version by its number; "latest", the newest; None, the default one."""
        wanted = self.default if version is None else version
        newest = self.versions[-1] if wanted == "latest" else None
        return newest or next((each for each in self.versions if each.version == wanted), None)


class Skills(Owned):
    async def add(self, skill: Skill) -> None:
        def work(tx: Transaction) -> None:
            columns = "id, owner, kind, upload, purpose, size, body"
            sql = f"INSERT INTO files ({columns}) VALUES (?, ?, 'skill', '', 'skill', 0, ?)"
            tx.run(sql, key_of(skill.id), self._owner, to_bytes(asdict(skill)))
            _keep(tx, skill)

        await self.database.write(work, durable=True)

    async def get(self, skill_id: str) -> Skill | None:
        which = ("body", "files", skill_id, _IS_SKILL)
        return await self.database.read(lambda tx: self._find(tx, _skill, *which))

    async def page(self, after: str | None, most: int, *, newest_first: bool) -> list[Skill] | None:
        """At most `most` skills that follow the one with the id `after`; None: there is no such."""
        how: dict[str, Any] = {"newest_first": newest_first, "only": _IS_SKILL}
        return await self._page(_skill, "body", "files", after, most, **how)

    async def change(self, skill_id: str, work: Callable[[Skill], Skill]) -> Skill | None:
        """Changes the record, and deletes the bundles of versions that it names no more; None: no such."""

        def change(tx: Transaction) -> Skill | None:
            key = key_of(skill_id)
            tx.run("UPDATE files SET size = size WHERE id = ?", key)  # other changes wait here
            if (before := self._find(tx, _skill, "body", "files", skill_id, _IS_SKILL)) is None:
                return None
            after = work(before)
            tx.run("UPDATE files SET body = ? WHERE id = ?", to_bytes(asdict(after)), key)
            _keep(tx, after)
            for gone in {each.id for each in before.versions} - {each.id for each in after.versions}:
                tx.run("UPDATE files SET expires_at = {now} WHERE id = ?", key_of(gone))
            return after

        return await self.database.write(change, durable=True)

    async def delete(self, skill_id: str) -> bool:
        """Deletes the skill with all bundles. Returns whether it existed."""

        def work(tx: Transaction) -> bool:
            key = key_of(skill_id)
            sql = f"UPDATE files SET expires_at = {{now}} WHERE id = ? AND owner = ? AND {_IS_SKILL}"
            if not tx.run(sql, key, self._owner):
                return False
            return tx.run("UPDATE files SET expires_at = {now} WHERE upload = ?", key) > 0

        return await self.database.write(work)


def _keep(tx: Transaction, skill: Skill) -> None:
    """From now on the bundles last."""
    for version in skill.versions:
        tx.run("UPDATE files SET expires_at = NULL WHERE id = ?", key_of(version.id))


def _skill(tx: Transaction, body: bytes) -> Skill:
    record = from_bytes(body)
    return Skill(**{**record, "versions": [Version(**each) for each in record["versions"]]})
