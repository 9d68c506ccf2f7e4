"""The skills of a shell, on the client's machine or in a container of this server.

Takes the `skills` of an environment. Returns the model's list of them, or what a session unpacks.
"""

import base64
import binascii
import hashlib
from collections.abc import Sequence
from functools import partial
from typing import Any

from gpt_oss_server.content.tools import Tool
from gpt_oss_server.errors import InvalidRequest, NoSuchFile
from gpt_oss_server.stores.documents.files import Files
from gpt_oss_server.stores.documents.skills import Skills
from tools.skills import Skill, SkillRefused, checked_description, checked_name, described, listed

_MOST = 20  # of a request


def local_skills(environment: Tool, where: str) -> str:
    """The model's list of skills on the client's machine; it reads a whole skill at its path."""
    skills = _objects(environment.get("skills") or [], where)
    parts = [[skill.get(key) for key in ("name", "path", "description")] for skill in skills]
    for index, row in enumerate(parts):
        if not all(isinstance(part, str) and part.strip() for part in row):
            raise InvalidRequest.at(f"{where}[{index}]", "must be an object with name, description and path.")
    return listed((str(name), str(path), str(about)) for name, path, about in parts)


def read_skills(given: Any, where: str) -> list[tuple[str, Tool]]:
    """The skills of a container, each with its place in the request."""
    skills = [(f"{where}[{index}]", skill) for index, skill in enumerate(_objects(given, where))]
    if len(skills) > _MOST:
        raise InvalidRequest.at(where, f"has {len(skills)} skills, and may have {_MOST}.")
    for at, skill in skills:
        kind = skill.get("type")
        if kind not in ("skill_reference", "inline"):
            raise InvalidRequest.at(f"{at}.type", "must be 'skill_reference' or 'inline'.")
        if kind == "skill_reference" and not isinstance(skill.get("skill_id"), str):
            raise InvalidRequest.at(f"{at}.skill_id", "must be the id of a skill.")
    return skills


async def bound_skills(wanted: Sequence[tuple[str, Tool]], skills: Skills, files: Files) -> tuple[Skill, ...]:
    """Raises an `ApiError` for a skill that is unknown, or that is none."""
    found = dict[str, Skill]()
    for where, given in wanted:
        inline = given["type"] == "inline"
        skill = _inline(given, where) if inline else await _stored(given, where, skills, files)
        if skill.name in found:
            raise InvalidRequest.at(where, f": two skills of the request are called {skill.name!r}.")
        found[skill.name] = skill
    return tuple(found.values())


async def _stored(given: Tool, where: str, skills: Skills, files: Files) -> Skill:
    version, skill = given.get("version"), await skills.get(given["skill_id"])
    found = None if skill is None else skill.find(None if version is None else str(version))
    if found is None:
        named = given["skill_id"] if version is None else f"{given['skill_id']} of version {version}"
        raise NoSuchFile.at(f"{where}.skill_id", f": there is no skill {named!r:.150}. See GET /v1/skills.")
    return Skill(found.id, found.name, found.description, partial(files.left, found.id))


def _inline(given: Tool, where: str) -> Skill:
    source = given.get("source")
    data = source.get("data") if isinstance(source, dict) else None
    try:
        bundle = base64.b64decode(data if isinstance(data, str) else "", validate=True)
        described(bundle)
        name, description = checked_name(given.get("name")), checked_description(given.get("description"))
    except binascii.Error as error:
        raise InvalidRequest.at(f"{where}.source.data", "must be a zip file in base64.") from error
    except SkillRefused as error:
        raise InvalidRequest(f"`{where}`: {error}", param=where) from error

    async def read() -> bytes:
        return bundle

    return Skill(hashlib.sha256(bundle).hexdigest(), name, description, read)


def _objects(given: Any, where: str) -> list[Tool]:
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        raise InvalidRequest.at(where, "must be a list of objects.")
    return given
