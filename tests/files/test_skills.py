"""Skills through the official SDK: their versions, and a shell of this server that has them."""

import base64
import io
import json
import zipfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.settings import Settings
from gpt_oss_server.stores.documents.skills import ARRIVING, Skill, Version
from gpt_oss_server.stores.files import NewFile
from gpt_oss_server.stores.kinds.table import open_stores
from tests.doubles.apis.keyed import ALICE, MALLORY, key_file
from tests.doubles.postgres import running_postgres
from tests.doubles.serving import scripted, serving
from tests.tools.python.conftest import needs_bubblewrap
from tools.skills import SkillRefused, described, unpack, zipped

FRONT = "---\nname: basic-math\ndescription: >\n  Add or multiply\n  numbers.\n---\nRun add.py."
FOLDER = {"math/SKILL.md": FRONT.encode(), "math/lib/add.py": b"print(40 + 2)"}
ANSWER = "<|channel|>final<|message|>Done.<|return|>"


def as_files(folder: dict[str, bytes]) -> Any:
    return [(path, content, "text/plain") for path, content in folder.items()]


def renamed(description: str) -> dict[str, bytes]:
    return {**FOLDER, "math/SKILL.md": FRONT.replace("Add or multiply", description).encode()}


@pytest.fixture(params=["memory", "sqlite", "folder", "postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Settings]:
    place = {"memory": "memory"}.get(request.param, f"sqlite:{tmp_path}/store")
    files = f"{tmp_path}/files" if request.param == "folder" else None
    with ExitStack() as stack:
        if request.param == "postgres":
            place = stack.enter_context(running_postgres()).new_database()
        yield Settings(store=place, files=files)


@pytest.fixture
def client(settings: Settings) -> Iterator[openai.OpenAI]:
    with serving(scripted(ANSWER), settings) as url, openai.OpenAI(base_url=url, api_key="any") as made:
        yield made


def test_a_skill_has_versions_of_which_one_is_the_default(client: openai.OpenAI) -> None:
    skills = client.skills
    made = skills.create(files=as_files(FOLDER))
    assert (made.name, made.description) == ("basic-math", "Add or multiply numbers.")
    assert (made.default_version, made.latest_version, made.object) == ("1", "1", "skill")
    second = skills.versions.create(made.id, files=("s.zip", zipped(renamed("Subtract"))))
    third = skills.versions.create(made.id, files=as_files(renamed("Divide")), default=True)
    assert [second.version, third.version, third.skill_id] == ["2", "3", made.id]
    assert skills.retrieve(made.id).description == "Divide numbers."
    assert skills.update(made.id, default_version="2").description == "Subtract numbers."
    assert [each.version for each in skills.versions.list(made.id, order="asc")] == ["1", "2", "3"]
    with zipfile.ZipFile(io.BytesIO(skills.content.retrieve(made.id).read())) as archive:
        assert archive.read("math/lib/add.py") == b"print(40 + 2)"
    assert b"Divide" not in skills.versions.content.retrieve("2", skill_id=made.id).read()
    with pytest.raises(openai.BadRequestError, match="default"):
        skills.versions.delete("2", skill_id=made.id)
    assert skills.versions.delete("3", skill_id=made.id).version == "3"
    assert skills.retrieve(made.id).latest_version == "2"
    assert skills.versions.create(made.id, files=as_files(FOLDER)).version == "4"  # no number comes twice
    other = skills.create(files=as_files(FOLDER))
    assert [each.id for each in skills.list()] == [other.id, made.id]
    assert client.files.list().data == []
    assert skills.delete(made.id).deleted
    assert [each.id for each in skills.list()] == [other.id]
    for version in ("1", "2"):
        with pytest.raises(openai.NotFoundError, match="no skill"):
            skills.versions.retrieve(version, skill_id=made.id)


def test_a_key_has_skills_of_its_own(tmp_path: Path, settings: Settings) -> None:
    keyed = Settings(api_key_file=key_file(tmp_path), store=settings.store, files=settings.files)
    with (
        serving(scripted(ANSWER), keyed) as url,
        openai.OpenAI(base_url=url, api_key=ALICE) as alice,
        openai.OpenAI(base_url=url, api_key=MALLORY) as other,
    ):
        made = alice.skills.create(files=as_files(FOLDER))
        assert other.skills.list().data == []
        for attempt in (other.skills.retrieve, other.skills.delete, other.skills.content.retrieve):
            with pytest.raises(openai.NotFoundError):
                attempt(made.id)
        with pytest.raises(openai.NotFoundError):
            other.skills.versions.create(made.id, files=as_files(FOLDER))
        assert alice.skills.retrieve(made.id).latest_version == "1"


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ({"math/README.md": b"x"}, "one SKILL.md"),
        ({"math/SKILL.md": b"x"}, "front matter"),
        ({"math/SKILL.md": b"---\nname: [\n---\n"}, "not YAML"),
        ({"math/SKILL.md": b"---\nname: Two Words\ndescription: a\n---\n"}, "small letters"),
        ({"math/SKILL.md": b"---\nname: math\n---\n"}, "description"),
        ({**FOLDER, "else/x": b"x"}, "2 folders"),
        ({"SKILL.md": FRONT.encode()}, "not a path"),
        ({**FOLDER, "math/../../x": b"x"}, "not a path"),
        ({**FOLDER, "math/\\x": b"x"}, "not a path"),
        ({**FOLDER, **{f"math/{at}": b"x" for at in range(500)}}, "502 files"),
    ],
)
def test_what_is_no_skill_is_refused_with_a_reason(folder: dict[str, bytes], words: str) -> None:
    with pytest.raises(SkillRefused, match=words):
        described(zipped(folder))


def test_a_bundle_that_lies_is_refused(tmp_path: Path) -> None:
    link = zipfile.ZipInfo("math/link")
    link.external_attr = 0o120777 << 16
    packed = io.BytesIO(zipped(FOLDER))
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr(link, "/etc/passwd")
    huge = zipped({**FOLDER, "math/huge": bytes(60 * 2**20)})
    damaged = bytearray(zipped({**FOLDER, "math/x": bytes(range(256)) * 64}))
    damaged[400:420] = bytes(20)
    twice = zipped({**FOLDER, "math/lib": b"a file and a folder"})
    with pytest.raises(SkillRefused, match=r"cannot be written: (File exists|Is a directory)"):
        unpack(twice, tmp_path / "twice")
    for bundle, words in (
        (packed.getvalue(), "a link"),
        (huge, "50 MB"),
        (damaged, "."),
        (b"PK", "zip file"),
    ):
        with pytest.raises(SkillRefused, match=words):
            unpack(bytes(bundle), tmp_path / "skill")
    assert not (tmp_path / "skill" / "link").exists()


def test_a_form_without_a_skill_is_named(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="front matter"):
        client.skills.create(files=as_files({"math/SKILL.md": b"x"}))
    with pytest.raises(openai.BadRequestError, match="100 parts"):
        client.skills.create(files=as_files({**FOLDER, **{f"math/{at}": b"x" for at in range(100)}}))
    with pytest.raises(openai.BadRequestError, match="Send a form"):
        client.skills.create()


def shell(*commands: str) -> str:
    body = json.dumps({"commands": commands})
    return f"<|channel|>commentary to=shell.exec <|constrain|>json<|message|>{body}<|call|>"


def test_a_shell_has_the_skills_and_cannot_change_them() -> None:
    needs_bubblewrap()
    look = shell("cat /mnt/skills/basic-math/SKILL.md", "python3 /mnt/skills/basic-math/lib/add.py")
    harm = shell(
        "echo x >> /mnt/skills/basic-math/SKILL.md", "rm -rf /mnt/skills/basic-math", "touch /mnt/skills/x"
    )
    settings = Settings(python="bubblewrap", browser="off")
    with (
        serving(scripted(look, harm, look, ANSWER), settings) as url,
        openai.OpenAI(base_url=url, api_key="any") as client,
    ):
        made = client.skills.create(files=as_files(FOLDER))
        inline = {"type": "base64", "media_type": "application/zip"}
        bundle = zipped({"x/SKILL.md": b"---\nname: x\ndescription: y\n---\n"})
        inline |= {"data": base64.b64encode(bundle).decode()}
        skills: Any = [
            {"type": "skill_reference", "skill_id": made.id, "version": "latest"},
            {"type": "inline", "name": "other", "description": "Another.", "source": inline},
        ]
        tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "skills": skills}}]
        body = {"input": "Go.", "tools": tools}
        prompt = client.post("/../render", body=body, cast_to=dict)["text"]
        assert "// - basic-math (/mnt/skills/basic-math): Add or multiply numbers." in prompt
        assert "// - other (/mnt/skills/other): Another." in prompt
        made_by = client.responses.create(**body)
        outputs = [item.output for item in made_by.output if item.type == "shell_call_output"]
        assert not outputs[0][0].stderr
        read, harmed, again = [[each.stdout for each in output] for output in outputs]
        assert read == again == [FRONT, "42\n"]
        assert all("Read-only" in each.stderr for each in outputs[1])
        assert harmed == ["", "", ""]


def test_each_request_of_a_container_has_its_own_version() -> None:
    needs_bubblewrap()
    look = shell("cat /mnt/skills/basic-math/SKILL.md")
    with (
        serving(scripted(look, ANSWER, loop=True), Settings(python="bubblewrap", browser="off")) as url,
        openai.OpenAI(base_url=url, api_key="any") as client,
    ):
        made = client.skills.create(files=as_files(FOLDER))
        client.skills.versions.create(made.id, files=as_files(renamed("Divide")))
        previous, read = None, []
        for version in ("1", "2", "1"):
            skill: Any = {"type": "skill_reference", "skill_id": made.id, "version": version}
            tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "skills": [skill]}}]
            response = client.responses.create(input="Go.", tools=tools, previous_response_id=previous)
            [output] = [item.output for item in response.output if item.type == "shell_call_output"]
            previous, read = response.id, [*read, "Divide" in output[0].stdout]
        assert read == [False, True, False]


@pytest.mark.parametrize(
    ("skill", "words"),
    [
        ({"type": "skill_reference", "skill_id": "skill_0"}, "there is no skill 'skill_0'"),
        ({"type": "skill_reference"}, "must be the id of a skill"),
        ({"type": "inline", "source": {"data": "%"}}, "in base64"),
        ({"type": "inline", "source": {"data": "YQ=="}}, "zip file that can be read"),
        ({"type": "else"}, "'skill_reference' or 'inline'"),
        ("math", "a list of objects"),
    ],
)
def test_a_wrong_skill_of_a_request_is_named(skill: Any, words: str) -> None:
    needs_bubblewrap()
    tools: Any = [{"type": "shell", "environment": {"type": "container_auto", "skills": [skill]}}]
    with (
        serving(scripted(ANSWER), Settings(python="bubblewrap", browser="off")) as url,
        openai.OpenAI(base_url=url, api_key="any") as client,
        pytest.raises(openai.APIStatusError, match=words) as caught,
    ):
        client.responses.create(input="Go.", tools=tools)
    assert caught.value.status_code in (400, 404)


async def test_what_no_skill_names_is_swept() -> None:
    stores = open_stores(Settings())
    alice = stores.of("alice")
    versions = [Version(f"skillver_{at}", str(at), "x", "y", 0) for at in (1, 2, 3)]
    skill = Skill("skill_1", 0, "1", 2, versions[:2])

    async def content() -> AsyncIterator[bytes]:
        yield b"PK"

    for version in versions:  # the third is that of a request that ended before it was added
        new = NewFile(version.id, "x.zip", "skill", 0, lasts=ARRIVING)
        await alice.files.create(new, content(), upload=skill.id)
    await alice.skills.add(skill)
    await stores.responses.database.write(
        lambda tx: tx.run("UPDATE files SET expires_at = expires_at - ?", ARRIVING)
    )
    await stores.files.sweep()
    assert [await alice.files.get(version.id) is not None for version in versions] == [True, True, False]
    await alice.skills.change(skill.id, lambda old: replace(old, versions=old.versions[:1]))
    await stores.files.sweep()
    assert [await alice.files.get(version.id) is not None for version in versions] == [True, False, False]
    assert await alice.skills.delete(skill.id)
    assert await alice.skills.get(skill.id) is None
    await stores.files.sweep()
    assert await alice.files.used_bytes() == 0
    await stores.close()
