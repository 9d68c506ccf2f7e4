"""Skills: folders of files whose SKILL.md names and describes what they teach.

Takes a zip file, or files by their paths. Returns what its SKILL.md says, and unpacks it into a folder, or
raises `SkillRefused` with a sentence. It must not know the server or sandboxes.
"""

import io
import re
import stat
import zipfile
import zlib
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import yaml  # type: ignore[import-untyped, unused-ignore]

MOUNT = "/mnt/skills"
MOST_BYTES = 50 * 2**20  # of a zip file, and of the files in it
_MOST_FILES = 500
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_LONGEST_NAME, _LONGEST_DESCRIPTION = 64, 1024  # as the Agent Skills standard has it
_MANIFEST = "SKILL.md"
_FRONT = re.compile(r"\A\ufeff?---[ \t]*\r?\n(.*?)^---[ \t]*\r?$", re.DOTALL | re.MULTILINE)
_IGNORED = ("__MACOSX", ".DS_Store")  # which macOS adds


class SkillRefused(ValueError):
    """The bundle is no skill; the message states what to change."""


class Skill(NamedTuple):
    """A skill that a request has for a session. `read` returns its zip; None: it was deleted meanwhile."""

    id: str
    name: str
    description: str
    read: Callable[[], Awaitable[bytes | None]]


def listed(skills: Iterator[tuple[str, str, str]]) -> str:
    """What the model is told of skills, each with its name, path and description."""
    lines = [f"- {name} ({path}): {description}" for name, path, description in skills]
    head = "Skills (read the SKILL.md in a skill's folder before you use it):"
    return "\n".join(["", head, *lines]) if lines else ""


def described(bundle: bytes) -> tuple[str, str]:
    """The name and the description of the skill in a zip file."""
    with _opened(bundle) as archive:
        manifests = {path: info for path, info in _files(archive) if path.lower() == _MANIFEST.lower()}
        if len(manifests) != 1:
            raise SkillRefused(f"The skill's folder must have one {_MANIFEST}, not {len(manifests)}.")
        [info] = manifests.values()
        front = _FRONT.match(_content(archive, info).decode("utf-8", "replace"))
    try:
        fields = yaml.safe_load(front[1]) if front is not None else None
    except yaml.YAMLError as error:
        raise SkillRefused(f"The front matter of {_MANIFEST} is not YAML: {error}") from error
    if not isinstance(fields, dict):
        raise SkillRefused(f"{_MANIFEST} must begin with front matter: a name and a description between ---.")
    return checked_name(fields.get("name")), checked_description(fields.get("description"))


def checked_name(name: Any) -> str:
    if not isinstance(name, str) or len(name) > _LONGEST_NAME or not _NAME.fullmatch(name):
        raise SkillRefused(
            f"A skill's name must have up to {_LONGEST_NAME} small letters, digits and single hyphens, not "
            f"{name!r:.80}."
        )
    return name


def checked_description(description: Any) -> str:
    text = " ".join(description.split()) if isinstance(description, str) else ""
    if not 0 < len(text) <= _LONGEST_DESCRIPTION:
        raise SkillRefused(f"A skill's description must have 1 to {_LONGEST_DESCRIPTION:,} characters.")
    return text


def zipped(files: Mapping[str, bytes]) -> bytes:
    """A zip file of these files, whose paths begin with the skill's folder."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            archive.writestr(path, content)
    return packed.getvalue()


def unpack(bundle: bytes, folder: Path) -> None:
    """Writes the skill's files into a folder, which must not exist."""
    with _opened(bundle) as archive:
        for path, info in _files(archive):
            target, content = folder / path, _content(archive, info)
            try:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(content)
                target.chmod(0o755 if info.external_attr >> 16 & 0o111 else 0o644)
            except OSError as error:  # its own text names this machine's folder
                raise SkillRefused(f"{path!r:.200} cannot be written: {error.strerror}.") from error


def _opened(bundle: bytes) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(bundle))
    except (zipfile.BadZipFile, ValueError) as error:
        raise SkillRefused(f"The skill is not a zip file that can be read: {error}.") from error


def _files(archive: zipfile.ZipFile) -> list[tuple[str, zipfile.ZipInfo]]:
    """The files with their paths in the skill's folder, which all have in common."""
    found, folders = list[tuple[str, zipfile.ZipInfo]](), set[str]()
    infos = [info for info in archive.infolist() if not info.is_dir()]
    for info in infos:
        folder, *steps = info.filename.split("/")
        if folder == _IGNORED[0] or _IGNORED[1] in steps:
            continue
        if not steps or not {folder, *steps}.isdisjoint({"", ".", ".."}) or "\\" in info.filename:
            raise SkillRefused(f"{info.filename!r:.200} is not a path in the skill's folder.")
        if info.flag_bits & 1 or stat.S_ISLNK(info.external_attr >> 16):
            raise SkillRefused(f"{info.filename!r:.200} is a link, or has a password. Send plain files.")
        folders.add(folder)
        found.append(("/".join(steps), info))
    if len(folders) != 1 or len(found) > _MOST_FILES or sum(i.file_size for _, i in found) > MOST_BYTES:
        raise SkillRefused(
            f"A skill is one folder of up to {_MOST_FILES} files and {MOST_BYTES // 2**20} MB. This has "
            f"{len(folders)} folders and {len(found)} files."
        )
    return found


def _content(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    try:
        return archive.read(info)  # no more bytes than the entry announces
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise SkillRefused(f"{info.filename!r:.200} in the zip file cannot be read: {error}.") from error
