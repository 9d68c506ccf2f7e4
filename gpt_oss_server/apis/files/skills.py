"""Skills as the API shows them: made of bundles, in versions, listed, read and deleted.

Takes forms with a zip file or the files of a folder, bodies and queries. Returns the API's objects, or raises
an `ApiError`.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from dataclasses import replace
from typing import Any

from starlette.requests import Request

from gpt_oss_server.apis.files.files import FilesApi, refusals, room_for_files
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import InvalidRequest, NotFound
from gpt_oss_server.http.fields import Body, read_body, required
from gpt_oss_server.http.paging import limit_of, newest_first, page, shown_page
from gpt_oss_server.http.uploads import bounded, form_of
from gpt_oss_server.runs.served import Served
from gpt_oss_server.stores.documents.skills import ARRIVING, Skill, Version
from tools.skills import MOST_BYTES, SkillRefused, described, zipped


class UpdateSkill(Body):
    default_version: str = required("The version that requests without one get.")


class SkillsApi:
    """The skills of one caller."""

    def __init__(self, served: Served, caller: Caller) -> None:
        self._files = FilesApi(served, caller)
        self._caller = caller
        self.keep = self._files.keep
        self._ids = served.ids

    async def create(self, request: Request) -> dict[str, Any]:
        skill_id = self._ids("skill")
        version, _ = await self._version(request, skill_id)
        skill = Skill(skill_id, version.created_at, "1", 1, (version,))
        await self.keep.skills.add(skill)
        return _shown(skill)

    async def add_version(self, skill_id: str, request: Request) -> dict[str, Any]:
        await self._find(skill_id)
        version, is_default = await self._version(request, skill_id)

        def added(skill: Skill) -> Skill:
            number = skill.last + 1
            numbered = replace(version, version=str(number))
            default = numbered.version if is_default else skill.default
            return replace(skill, default=default, last=number, versions=(*skill.versions, numbered))

        skill = _found(await self.keep.skills.change(skill_id, added), skill_id)
        return _shown_version(skill, next(each for each in skill.versions if each.id == version.id))

    async def _version(self, request: Request, skill_id: str) -> tuple[Version, bool]:
        """The first version, whose bundle is stored, and whether the form wants it as the default."""
        room = await room_for_files(self._caller, self.keep)
        bundle, is_default = await _bundle(request)
        try:
            name, description = await asyncio.to_thread(described, bundle)
        except SkillRefused as error:
            raise InvalidRequest(f"`files`: {error}", param="files") from error
        new = self._files.new(f"{name}.zip", "skill", lasts=ARRIVING, prefix="skillver")
        with refusals():
            await self.keep.files.create(new, _once(bundle), room=room, upload=skill_id)
        return Version(new.id, "1", name, description, new.created_at), is_default

    async def listed(self, query: Mapping[str, str]) -> dict[str, Any]:
        most, after = limit_of(query), query.get("after")
        found = await self.keep.skills.page(after, most + 1, newest_first=newest_first(query))
        return shown_page(found, most, after, _shown)

    async def retrieve(self, skill_id: str) -> dict[str, Any]:
        return _shown(await self._find(skill_id))

    async def update(self, skill_id: str, body: object) -> dict[str, Any]:
        wanted = read_body(body, UpdateSkill, '{"default_version": "2"}').default_version

        def changed(skill: Skill) -> Skill:
            return replace(skill, default=_version_of(skill, wanted).version)

        return _shown(_found(await self.keep.skills.change(skill_id, changed), skill_id))

    async def delete(self, skill_id: str) -> dict[str, Any]:
        if not await self.keep.skills.delete(skill_id):
            raise _missing(skill_id)
        return {"id": skill_id, "object": "skill.deleted", "deleted": True}

    async def versions(self, skill_id: str, query: Mapping[str, str]) -> dict[str, Any]:
        skill = await self._find(skill_id)
        return page([_shown_version(skill, each) for each in skill.versions], query)

    async def version(self, skill_id: str, version: str) -> dict[str, Any]:
        skill = await self._find(skill_id)
        return _shown_version(skill, _version_of(skill, version))

    async def delete_version(self, skill_id: str, version: str) -> dict[str, Any]:
        gone: list[Version] = []

        def without(skill: Skill) -> Skill:
            gone.append(found := _version_of(skill, version))
            left = tuple(each for each in skill.versions if each is not found)
            if not left or found.version == skill.default:
                problem = "is the default version. Make another the default first, or delete the skill."
                raise InvalidRequest.at("version", problem)
            return replace(skill, versions=left)

        _found(await self.keep.skills.change(skill_id, without), skill_id)
        return {
            "id": gone[-1].id,
            "object": "skill.version.deleted",
            "version": gone[-1].version,
            "deleted": True,
        }

    async def bundle(self, skill_id: str, version: str | None = None) -> tuple[str, bytes]:
        """The name and the bytes of a version's zip file, or of the default one's."""
        found = _version_of(await self._find(skill_id), version)
        return await self.keep.files.whole(found.id, "version")

    async def _find(self, skill_id: str) -> Skill:
        return _found(await self.keep.skills.get(skill_id), skill_id)


async def _bundle(request: Request) -> tuple[bytes, bool]:
    """The zip file in a form, or one of the files of its folder; and whether its `default` is true."""
    files, default, size = dict[str, bytes](), "", 0
    async with aclosing(form_of(request, 2 * MOST_BYTES)) as form:
        async for part in form:
            if part.name.removesuffix("[]") == "files" and part.filename:
                files[part.filename] = b"".join(
                    [each async for each in bounded(part.content, MOST_BYTES - size)]
                )
                size += len(files[part.filename])
            elif part.name == "default":
                default = await part.value()
    if not files:
        raise InvalidRequest.at("files", "is missing: send a zip file, or the files of the skill's folder.")
    [first, *others] = files.values()
    is_zip = not others and first.startswith(b"PK")
    return first if is_zip else await asyncio.to_thread(zipped, files), default.lower() == "true"


async def _once(content: bytes) -> AsyncIterator[bytes]:
    yield content


def _found(skill: Skill | None, skill_id: str) -> Skill:
    if skill is None:
        raise _missing(skill_id)
    return skill


def _missing(skill_id: str) -> NotFound:
    return NotFound(
        f"There is no skill {skill_id!r:.100}: it was never created with this key, or was deleted.",
        param="skill_id",
    )


def _version_of(skill: Skill, version: str | None) -> Version:
    if (found := skill.find(version)) is None:
        known = ", ".join(each.version for each in skill.versions[-9:])
        raise NotFound(
            f"The skill {skill.id} has no version {version!r:.40}. It has {known}.", param="version"
        )
    return found


def _shown(skill: Skill) -> dict[str, Any]:
    default = _version_of(skill, None)
    return {
        "id": skill.id,
        "object": "skill",
        "created_at": skill.created_at,
        "name": default.name,
        "description": default.description,
        "default_version": skill.default,
        "latest_version": skill.versions[-1].version,
    }


def _shown_version(skill: Skill, version: Version) -> dict[str, Any]:
    return {
        "id": version.id,
        "object": "skill.version",
        "skill_id": skill.id,
        "created_at": version.created_at,
        "version": version.version,
        "name": version.name,
        "description": version.description,
    }
