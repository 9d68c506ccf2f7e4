"""Records are plain data, and a turn stores only its addition, however long its history is.
Only the server that sealed a text can open it, and only for the same purpose.
The `--store` setting names an existing kind of store; any other name is refused with a sentence.
"""

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.harmony.history import Segment
from gpt_oss_server.settings import Settings, SettingsError, read_configuration
from gpt_oss_server.stores.base import Append, StoredResponse
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.stores.memory import MemoryStore
from gpt_oss_server.stores.sealing import Sealer, server_sealer
from tests.contracts.completions_contract import completion
from tests.doubles.apis.asking import conversations_of, responses_service
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.stored import known, stored

FINAL = "<|channel|>final<|message|>Fine.<|return|>"


async def completed(service: ResponsesService, **body: Any) -> dict[str, Any]:
    response = await (await service.start(LOCAL, {"input": "Hi", **body})).wait()
    assert response["status"] == "completed"
    return response


class Counting(MemoryStore):
    """Counts the segments that each `put` stores with the response and in its conversation."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: list[tuple[int, int]] = []

    async def put(self, stored: StoredResponse, append: Append | None = None) -> None:
        parts = append.parts if append else ()
        self.counts.append((len(stored.added.segments), sum(len(part.added.segments) for part in parts)))
        await super().put(stored, append)


@pytest.mark.parametrize("by_conversation", [False, True])
async def test_a_late_turn_stores_as_many_segments_as_an_early_one(
    encoding: Encoding, by_conversation: bool
) -> None:
    store = Counting()
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding, store=store)
    past = {"conversation": (await conversations_of(service).create({}))["id"]} if by_conversation else {}
    for _ in range(60):
        response = await completed(service, **past)
        past = past if by_conversation else {"previous_response_id": response["id"]}
    assert store.counts == [(2, 2 if by_conversation else 0)] * 60
    assert len(known(await store.history(response["id"])).segments) == 120
    await service.close()


async def test_a_turn_whose_parent_is_deleted_meanwhile_is_stored_with_its_whole_history(
    encoding: Encoding,
) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL))
    service = responses_service(engine, Settings(), encoding=encoding)
    first = await completed(service, input="one")
    second = await service.start(LOCAL, {"input": "two", "previous_response_id": first["id"]})
    await service.stored(LOCAL).delete(first["id"])
    await second.wait()
    await completed(service, input="three", previous_response_id=second.id)
    prompt = encoding.decode(engine.prompts[-1])
    assert [text in prompt for text in ("one", "two", "three")] == [True] * 3
    assert prompt.count("Fine.") == 2
    await service.close()


async def test_turns_that_no_longer_fit_into_the_context_leave_the_chain(encoding: Encoding) -> None:
    engine = ReplayEngine(encoding.encode_special(FINAL), context_length=600)
    service = responses_service(engine, Settings(), encoding=encoding)
    response: dict[str, Any] = {"id": None}
    for number in range(6):
        body = {"input": f"turn {number}: " + "word " * 100, "truncation": "auto"}
        response = await completed(service, previous_response_id=response["id"], **body)
    stored = await service.stored(LOCAL).retrieve(response["id"])
    history = known(await service.served.stores.responses.history(response["id"]))
    assert stored.parent is None
    assert len(history.segments) < 12
    last = encoding.encode_special("<|start|>assistant" + FINAL[:-10] + "<|end|>")
    assert history.segments[-1] == Segment("assistant", tuple(last), "final")
    await service.close()


SEALER = Sealer(b"one server's secret")
CONTENT = "Grüße, 東京 🧠".encode()


@given(st.binary(max_size=300), st.text(max_size=20))
def test_opening_returns_the_sealed_bytes_for_the_same_purpose_and_key(content: bytes, purpose: str) -> None:
    purpose = purpose.encode("utf-8", "replace").decode()
    sealed = SEALER.seal(purpose, content)
    assert sealed.isascii()
    assert SEALER.open(purpose, sealed) == content
    assert SEALER.open(purpose + ".", sealed) is None
    assert Sealer(b"another server's secret").open(purpose, sealed) is None


def test_a_sealed_text_is_unreadable_differs_each_time_and_opens_only_unchanged() -> None:
    sealed = SEALER.seal("reasoning", CONTENT)
    assert sealed != SEALER.seal("reasoning", CONTENT)
    whole = base64.urlsafe_b64decode(sealed)
    assert CONTENT not in whole
    for at in range(len(whole)):
        changed = bytes((*whole[:at], whole[at] ^ 1, *whole[at + 1 :]))
        for other in (changed, whole[:at]):
            assert SEALER.open("reasoning", base64.urlsafe_b64encode(other).decode()) is None


@given(st.text(max_size=200) | st.sampled_from(("", "AQ==", "A", "é", "\ud800", "AQ" * 5000, "AQID\n")))
def test_foreign_texts_neither_open_nor_raise(text: str) -> None:
    assert SEALER.open("reasoning", text) is None


def test_servers_with_the_same_key_file_open_each_other_s_texts(tmp_path: Path) -> None:
    file = str(tmp_path / "new" / "key")
    sealed = server_sealer(file).seal("reasoning", CONTENT)
    assert server_sealer(file).open("reasoning", sealed) == CONTENT
    assert stat.S_IMODE(os.stat(file).st_mode) == 0o600


def test_without_a_key_file_the_state_folder_holds_the_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    sealed = server_sealer(None).seal("reasoning", CONTENT)
    assert [path.name for path in (tmp_path / "gpt-oss-server").iterdir()] == ["sealing.key"]
    assert server_sealer(None).open("reasoning", sealed) == CONTENT


def test_servers_that_start_simultaneously_agree_on_a_key(tmp_path: Path) -> None:
    with ThreadPoolExecutor(16) as pool:
        sealers = list(pool.map(server_sealer, [str(tmp_path / "key")] * 16))
    assert all(s.open("x", sealers[0].seal("x", CONTENT)) == CONTENT for s in sealers)
    assert [path.name for path in tmp_path.iterdir()] == ["key"]


def test_a_key_file_that_cannot_be_used_is_refused_with_a_sentence(tmp_path: Path) -> None:
    file, nobody = tmp_path / "key", "~nobody-of-this-name/key"
    file.write_text("  short \n")
    unusable = r"--sealing-key-file: .*key/key cannot be read or created"
    why = {file: "at least 32 characters", file / "key": unusable, nobody: f"{nobody} names no file"}
    for name, sentence in why.items():
        with pytest.raises(SettingsError, match=sentence):
            server_sealer(str(name))


@pytest.mark.parametrize("home", [True, False], ids=["no folder", "no home"])
def test_without_a_state_folder_the_key_lasts_as_long_as_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, home: bool
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "file"))
    if not home:
        monkeypatch.delenv("XDG_STATE_HOME")
        monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError))
    sealer = server_sealer(None)
    assert sealer.open("x", sealer.seal("x", CONTENT)) == CONTENT
    assert "--sealing-key-file" in caplog.text


def test_a_key_file_may_be_in_the_user_s_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    server_sealer("~/keys/sealing")
    assert (tmp_path / "home/keys/sealing").is_file()
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("place", ["redis", "redis:host", "", "memory ", "memory:/tmp"])
def test_a_kind_that_does_not_exist_is_refused(place: str) -> None:
    must = "must be memory, sqlite, sqlite:PATH or postgres://…, not "
    with pytest.raises(SettingsError, match=f"store {must}"):
        Settings(store=place)
    with pytest.raises(SettingsError, match=f"--store {must}"):
        read_configuration({"store": "redis"}, {})


async def test_what_an_owner_keeps_is_its_own() -> None:
    stores = open_stores(Settings())
    alice, bob = stores.of("alice"), stores.of("bob")
    await alice.responses.put(stored("resp_1"))
    await alice.completions.put(completion(1))
    await alice.events.begin("run")
    sealed = alice.sealer.seal("reasoning", b"a thought")
    assert await alice.used_bytes() > 0
    assert await bob.used_bytes() == 0
    assert await bob.events.open("run") is None
    assert await alice.events.open("run") is not None
    assert [keep.sealer.open("reasoning", sealed) for keep in (alice, bob)] == [b"a thought", None]
    await stores.close()
