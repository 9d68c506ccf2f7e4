"""The keys of a server: the lines of their file, their look-up, and what each may use."""

import gc
import hashlib
import logging
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.apis.responses.run import Run
from gpt_oss_server.caller.access import Access, KeyLimits
from gpt_oss_server.caller.key_file import digest_of, read_keys
from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.apis.api_client import Api
from tests.doubles.apis.keyed import MALLORY, key_file, with_keys
from tests.doubles.serving import HELLO, scripted
from tests.doubles.stored import known
from tests.doubles.waiting import until_found

KEY, OTHER, NEW = "sk-2b7e151628aed2a6", "sk-9f86d081884c7d65", "sk-60303ae22b998861"


def ring(file: Path | None = None, *keys: str, **settings: object) -> Keyring:
    given = Settings(api_key=keys, api_key_file=None if file is None else str(file), **settings)  # type: ignore[arg-type]
    return Keyring(given, ("python",))


def written(folder: Path, text: str) -> Path:
    file = folder / "keys"
    file.write_text(text)
    return file


def test_a_key_is_found_and_nothing_else_is(tmp_path: Path) -> None:
    keys = ring(written(tmp_path, f"{KEY} name=shop"), OTHER)
    assert known(keys.find(digest_of(KEY))).name == "shop"
    assert keys.find(digest_of(OTHER)) is not None
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    for wrong in (NEW, "", KEY[:-1], KEY + "x", KEY.upper(), digest, "\udce9"):
        assert keys.find(digest_of(wrong)) is None


def test_no_key_is_kept(tmp_path: Path) -> None:
    secret = "sk-" + hashlib.sha256(b"of this test").hexdigest()
    keys = ring(written(tmp_path, f"{secret} name=shop"))
    assert keys.find(digest_of(secret)) is not None
    seen: set[int] = set()
    waiting: list[object] = [keys.__dict__]
    while waiting:
        thing = waiting.pop()
        if id(thing) in seen or isinstance(thing, type | logging.Logger):
            continue
        seen.add(id(thing))
        assert not (isinstance(thing, str) and secret in thing)
        assert not (isinstance(thing, bytes) and secret.encode() in thing)
        if isinstance(thing, dict | list | tuple | frozenset) or hasattr(thing, "__slots__"):
            waiting += gc.get_referents(thing)
    assert len(seen) > 10, "nothing was looked at"


def test_a_change_of_the_file_takes_effect(tmp_path: Path) -> None:
    file = written(tmp_path, f"{KEY} name=shop rpm=5")
    keys = ring(file)
    before = known(keys.find(digest_of(KEY)))
    file.write_text(f"{NEW} name=shop rpm=7")
    keys.reload()
    after = known(keys.find(digest_of(NEW)))
    assert (after.owner, after.limits.rpm) == (before.owner, 7)
    assert keys.find(digest_of(KEY)) is None
    assert keys.current(before) is None
    assert keys.current(after) == after


async def test_a_running_server_notices_a_change_also_of_a_replaced_file(tmp_path: Path) -> None:
    keys = ring(written(tmp_path, KEY))
    keys.start()
    try:
        (tmp_path / "next").write_text(NEW)
        (tmp_path / "next").replace(tmp_path / "keys")

        async def found() -> bool:
            return keys.find(digest_of(NEW)) is not None

        await until_found(found, bool)
    finally:
        await keys.close()


@pytest.mark.parametrize("broken", ["", "# none\n", f"{NEW} rpm=fast", "\udcff"])
def test_a_broken_file_keeps_the_old_keys_and_is_a_sentence_in_the_log(
    tmp_path: Path, broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    file = written(tmp_path, KEY)
    keys = ring(file)
    file.write_bytes(broken.encode("utf-8", "surrogateescape"))
    for _ in range(3):
        keys.reload()
    assert keys.find(digest_of(KEY)) is not None
    assert keys.find(digest_of(NEW)) is None
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once for each change"
    assert "stay as they were" in caplog.text
    assert NEW not in caplog.text
    file.unlink()
    keys.reload()
    assert keys.find(digest_of(KEY)) is not None
    assert "cannot be read" in caplog.text
    file.write_text(NEW)
    keys.reload()
    assert keys.find(digest_of(NEW)) is not None


@pytest.mark.parametrize("text", ["", "# none", f"{KEY} rpm=fast"])
def test_a_server_does_not_start_with_a_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="--api-key-file"):
        ring(written(tmp_path, text))
    with pytest.raises(SettingsError, match="cannot be read"):
        ring(tmp_path / "nothing")


def test_a_lookup_takes_as_long_for_nearly_right_keys_as_for_wrong_ones(tmp_path: Path) -> None:
    keys = ring(written(tmp_path, "\n".join(f"sk-{number:032x}" for number in range(1000))))
    right = f"sk-{999:032x}"
    nearly, far = right[:-1] + "0", "x" * len(right)

    def seconds(key: str) -> float:
        began = time.thread_time()
        for _ in range(200):
            keys.find(digest_of(key))
        return time.thread_time() - began

    for one, other in ((nearly, far), (right, far), (f"sk-{0:032x}", right)):
        ratios = [seconds(one) / seconds(other) for _ in range(60)]
        assert 0.7 < statistics.median(ratios) < 1.4  # other programs disturb its caches


@pytest.mark.parametrize("key", ["sk a", "sk\ta", "sk\x00"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SettingsError, match="no spaces") as caught:
        ring(None, key)
    assert key not in str(caught.value)


DIGEST = hashlib.sha256(KEY.encode()).hexdigest()
TOOLS = ("browser", "python", "mcp")
SIZES = "must be a size in bytes such as 1048576, 512KiB, 64MiB or 2GiB, at least 128MiB"


def read(text: str, defaults: KeyLimits | None = None) -> dict[bytes, Access]:
    return dict(read_keys(text, "keys", defaults or KeyLimits(), TOOLS))


def only(text: str, defaults: KeyLimits | None = None) -> Access:
    [access] = read(text, defaults).values()
    return access


def test_a_line_is_a_key_and_comments_and_empty_lines_are_none() -> None:
    found = read(f"# ours\n\n  {KEY}\n\t# more\n{OTHER}\r\n")
    assert list(found) == [digest_of(KEY), digest_of(OTHER)]


def test_a_key_without_a_name_has_an_owner_of_its_own_that_does_not_show_it() -> None:
    one, other = (only(key) for key in (KEY, OTHER))
    assert one.owner != other.owner
    assert one.owner == only(f"  {KEY} rpm=5").owner
    assert DIGEST[:12] not in one.owner
    assert KEY not in repr(one)


def test_a_hash_stands_for_its_key() -> None:
    assert read(f"sha256:{DIGEST} name=shop") == read(f"{KEY} name=shop")


def test_fields_set_the_limits_the_tools_and_the_name() -> None:
    access = only(
        f"{KEY} name=shop rpm=600 tpm=200_000 concurrent=8 background=2 kernels=1 memory=1GiB stored=64MiB"
        " tools=python,mcp"
    )
    assert (access.owner, access.name) == ("shop", "shop")
    assert access.limits == KeyLimits(600, 200_000, 8, 2, 1, 2**30, 64 * 2**20)
    assert [access.allows(tool) for tool in TOOLS] == [False, True, True]


def test_a_key_has_the_defaults_unless_its_line_says_otherwise() -> None:
    defaults = KeyLimits(rpm=10, tpm=1000)
    assert only(KEY, defaults).limits == defaults
    assert only(f"{KEY} rpm=none", defaults).limits == KeyLimits(tpm=1000)
    everything, nothing = only(KEY), only(f"{KEY} tools=none")
    assert all(map(everything.allows, TOOLS))
    assert not any(map(nothing.allows, TOOLS))


def test_two_keys_of_one_name_are_one_owner() -> None:
    found = read(f"{KEY} name=shop rpm=5\n{OTHER} name=shop rpm=5")
    assert [access.owner for access in found.values()] == ["shop", "shop"]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (f"{KEY} shop", "FIELD=VALUE"),
        (f"{KEY} colour=red", "FIELD=VALUE"),
        (f"{KEY} rpm=fast", "rpm must be a whole number"),
        (f"{KEY} rpm=0", "at least 1"),
        (f"{KEY} stored=big", "stored must be a size"),
        (f"{KEY} memory=64MiB", f"memory {SIZES}"),
        (f"{KEY} name=a name=b", "name is set twice"),
        (f"{KEY} name=a/b", "a name must have"),
        (f"{KEY} name=key-1", "must not begin"),
        (f"{KEY} tools=browser,shell", "not 'shell'"),
        (f"{KEY}\n{KEY} name=again", "earlier line"),
        (f"{KEY} name=shop rpm=5\n{OTHER} name=shop", "other limits, tools or models"),
        (f"{KEY} name=shop tools=none\n{OTHER} name=shop", "other limits, tools or models"),
    ],
)
def test_a_mistake_is_a_sentence_with_the_line_and_without_the_key(text: str, part: str) -> None:
    with pytest.raises(SettingsError) as caught:
        read(text)
    message = str(caught.value)
    assert part in message
    assert message.startswith(f"keys, line {len(text.splitlines())}: ")
    assert "sk-" not in message


CODE = {"type": "code_interpreter", "container": {"type": "auto"}}
WEB = {"type": "web_search"}
MCP = {"type": "mcp", "server_label": "x", "server_url": "http://127.0.0.1:9/mcp"}
MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.fixture
def api(tmp_path: Path) -> Api:
    keys = ("sk-none tools=none", "sk-python tools=python", "sk-web tools=browser", "sk-all")
    (tmp_path / "pages").mkdir()
    tools = {"python": "unsafe-local", "browser": f"local:{tmp_path}/pages", "allow_private_hosts": True}
    return Api(scripted(HELLO), with_keys(tmp_path, *keys, **tools))


async def status(api: Api, key: str, path: str, **body: Any) -> tuple[int, str | None]:
    answer = await api.client.post(path, json=body, headers={"Authorization": f"Bearer {key}"})
    return answer.status_code, (answer.json().get("error") or {}).get("code")


REFUSED = (403, "tool_not_allowed")


@pytest.mark.parametrize(
    ("tool", "allowed"),
    [(CODE, {"sk-python", "sk-all"}), (WEB, {"sk-web", "sk-all"})],
    ids=["python", "browser"],
)
async def test_a_hosted_tool_is_for_some_keys(api: Api, tool: dict[str, Any], allowed: set[str]) -> None:
    for key in ("sk-none", "sk-python", "sk-web", "sk-all"):
        expected = (200, None) if key in allowed else REFUSED
        assert await status(api, key, "/responses", input="Hi", tools=[tool]) == expected
        assert await status(api, key, "/chat/completions", messages=MESSAGES, tools=[tool]) == expected


async def test_servers_of_requests_are_for_the_keys_that_may_use_mcp(api: Api) -> None:
    for key in ("sk-none", "sk-python", "sk-web"):
        assert await status(api, key, "/responses", input="Hi", tools=[MCP]) == REFUSED
    assert (await status(api, "sk-all", "/responses", input="Hi", tools=[MCP]))[1] != "tool_not_allowed"


async def test_other_ways_to_a_tool_are_closed_too(api: Api) -> None:
    builtin = {"messages": MESSAGES, "chat_template_kwargs": {"builtin_tools": ["python"]}}
    for key, path, body in (
        ("sk-web", "/containers", {"name": "data"}),
        ("sk-web", "/chat/completions", builtin),
        ("sk-python", "/chat/completions", {"messages": MESSAGES, "web_search_options": {}}),
        ("sk-none", "/responses/input_tokens", {"input": "Hi", "tools": [CODE]}),
    ):
        assert await status(api, key, path, **body) == REFUSED


async def test_a_search_that_a_client_offers_to_every_server_is_left_out(api: Api) -> None:
    optional = {"type": "web_search", "external_web_access": True}
    assert await status(api, "sk-none", "/responses", input="Hi", tools=[optional]) == (200, None)


LONG = "<|channel|>final<|message|>" + "word " * 600 + "<|return|>"


async def get(api: Api, key: str, path: str) -> tuple[int, Any]:
    answer = await api.client.get(path, headers={"Authorization": f"Bearer {key}"})
    is_json = answer.headers["content-type"] == "application/json"
    return answer.status_code, answer.json() if is_json else answer.text


SHOP = "sk-of-shop-6f1ed002ab5595859014ebf0951522d9"


async def test_whoever_continues_a_run_serves_its_owner_with_the_limits_of_its_key(tmp_path: Path) -> None:
    keys = key_file(tmp_path, f"{SHOP} name=shop rpm=60 concurrent=3 kernels=1 stored=4MiB tools=browser")
    settings = Settings(store=f"sqlite:{tmp_path / 'store.sqlite'}", api_key_file=keys, python="off")
    first = Api(scripted(LONG, tokens_per_second=200), settings)
    sent = {"X-Api-Key": SHOP, "x-session-id": "s1"}
    body = {"input": "Hi", "background": True}
    begun = (await first.client.post("/responses", json=body, headers=sent)).json()
    began = known(first.service.background.running(begun["id"], "shop"))
    place = f"/responses/{begun['id']}"

    async def output() -> list[Any]:
        return list((await first.service.background.logs.logged(begun["id"]))[3:])  # type: ignore[attr-defined]

    await until_found(output, bool)
    await first.service.close()  # which hands its runs over

    second = Api(scripted(LONG, tokens_per_second=2_000), settings)
    assert (await get(second, SHOP, place))[1]["status"] == "in_progress"
    assert (await get(second, MALLORY, place))[0] == 404
    second.service.continuing.start()

    async def running() -> Run | None:
        return second.service.background.running(begun["id"], "shop")

    run = known(await until_found(running, lambda found: found is not None))
    assert run.caller.access == replace(began.caller.access, digest=b"")
    assert run.caller.access.limits.kernels == 1
    assert (run.caller.client, run.caller.labels) == (began.caller.client, began.caller.labels)
    assert run.caller.labels["x-session-id"] == "s1"

    async def status() -> str:
        return str((await get(second, SHOP, place))[1]["status"])

    assert await until_found(status, lambda found: found == "completed")
    for path in (place, f"{place}?stream=true", f"{place}/input_items"):
        assert (await get(second, MALLORY, path))[0] == 404
        assert (await get(second, SHOP, path))[0] == 200
    _, events = await get(second, SHOP, f"{place}?stream=true")
    assert events.rstrip().splitlines()[-1].startswith('data: {"type":"response.completed"')
    continued = {"input": "Go on", "previous_response_id": begun["id"]}
    for key, expected in ((MALLORY, 400), (SHOP, 200)):
        answer = await second.client.post("/responses", json=continued, headers={"X-Api-Key": key})
        assert answer.status_code == expected
    await second.service.close()
