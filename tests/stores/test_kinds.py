"""The `--store` setting names an existing kind of store; any other name is refused with a sentence."""

import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.settings import OPTIONS, Settings, SettingsError, read_settings
from gpt_oss_server.stores.kinds.table import KINDS, open_store
from gpt_oss_server.stores.memory.store import MemoryDatabase
from tests.contracts.completions_contract import completion
from tests.doubles.serving import scripted
from tests.doubles.stored import stored


def test_memory_is_the_default_and_its_bounds_are_the_settings() -> None:
    assert Settings().store == "memory"
    app = create_app(scripted("Hi"), Settings(store="memory", store_max_bytes=12_345))
    database = app.state.service.served.stores.responses.database
    assert isinstance(database, MemoryDatabase)
    assert database._bounds.bytes == 12_345


@pytest.mark.parametrize("place", ["redis", "redis:host", "", "memory "])
def test_a_kind_that_does_not_exist_is_refused(place: str) -> None:
    must = "must be memory, sqlite, sqlite:PATH or postgres://…, not "
    with pytest.raises(SettingsError, match=f"store {must}"):
        Settings(store=place)
    with pytest.raises(SettingsError, match=f"--store {must}"):
        read_settings({"store": "redis"}, {})
    with pytest.raises(SettingsError, match=r"store must be memory or sqlite or .*, not "):
        open_store(place, Settings())


def test_memory_has_no_place() -> None:
    with pytest.raises(SettingsError, match="memory without a place"):
        create_app(scripted("Hi"), Settings(store="memory:/tmp"))


def test_the_setting_accepts_every_kind() -> None:
    [option] = [option for option in OPTIONS if option.name == "store"]
    assert all(option.kind.holds(kind) for kind in KINDS)


async def test_what_an_owner_keeps_is_its_own() -> None:
    stores = open_store("memory", Settings())
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
