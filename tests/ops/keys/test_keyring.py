"""The keys of a server: looked up, reloaded, and never kept as they are."""

import asyncio
import gc
import hashlib
import logging
import statistics
import time
from pathlib import Path

import pytest

from gpt_oss_server.caller.keyring import Keyring
from gpt_oss_server.settings import Settings, SettingsError
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
    found = keys.find(KEY)
    assert found is not None
    assert found.name == "shop"
    assert keys.find(OTHER) is not None
    digest = hashlib.sha256(KEY.encode()).hexdigest()
    for wrong in (NEW, "", KEY[:-1], KEY + "x", KEY.upper(), digest, "\udce9"):
        assert keys.find(wrong) is None


def test_without_keys_the_server_is_open() -> None:
    assert ring().is_open
    assert not ring(None, KEY).is_open


def test_no_key_is_kept(tmp_path: Path) -> None:
    secret = "sk-" + hashlib.sha256(b"of this test").hexdigest()
    keys = ring(written(tmp_path, f"{secret} name=shop"))
    assert keys.find(secret) is not None
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
    before = keys.find(KEY)
    assert before is not None
    file.write_text(f"{NEW} name=shop rpm=7")
    keys.reload()
    after = keys.find(NEW)
    assert after is not None
    assert (after.owner, after.limits.rpm) == (before.owner, 7)
    assert keys.find(KEY) is None
    assert keys.current(before) is None
    assert keys.current(after) == after


async def test_a_running_server_notices_a_change_also_of_a_replaced_file(tmp_path: Path) -> None:
    keys = ring(written(tmp_path, KEY))
    keys.start()
    try:
        (tmp_path / "next").write_text(NEW)
        (tmp_path / "next").replace(tmp_path / "keys")

        async def found() -> bool:
            return keys.find(NEW) is not None

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
    assert keys.find(KEY) is not None
    assert keys.find(NEW) is None
    assert [record.levelname for record in caplog.records] == ["ERROR"], "once for each change"
    assert "stay as they were" in caplog.text
    assert NEW not in caplog.text
    file.unlink()
    keys.reload()
    assert keys.find(KEY) is not None
    assert "cannot be read" in caplog.text
    file.write_text(NEW)
    keys.reload()
    assert keys.find(NEW) is not None


@pytest.mark.parametrize("text", ["", "# none", f"{KEY} rpm=fast"])
def test_a_server_does_not_start_with_a_file_that_cannot_be_used(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="--api-key-file"):
        ring(written(tmp_path, text))
    with pytest.raises(SettingsError, match="cannot be read"):
        ring(tmp_path / "nothing")


def test_a_lookup_takes_as_long_for_nearly_right_keys_as_for_wrong_ones(tmp_path: Path) -> None:
    """With a thousand keys, and compared pair by pair, since other programs share the machine."""
    keys = ring(written(tmp_path, "\n".join(f"sk-{number:032x}" for number in range(1000))))
    right = f"sk-{999:032x}"
    nearly, far = right[:-1] + "0", "x" * len(right)

    def seconds(key: str) -> float:
        began = time.perf_counter()
        for _ in range(200):
            keys.find(key)
        return time.perf_counter() - began

    for one, other in ((nearly, far), (right, far), (f"sk-{0:032x}", right)):
        ratios = [seconds(one) / seconds(other) for _ in range(60)]
        assert 0.8 < statistics.median(ratios) < 1.25


async def test_closing_twice_and_without_a_file_is_harmless() -> None:
    keys = ring(None, KEY)
    keys.start()
    await keys.close()
    await asyncio.sleep(0)


@pytest.mark.parametrize("key", ["sk a", "sk\ta", "sk\x00"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(SettingsError, match="no spaces") as caught:
        ring(None, key)
    assert key not in str(caught.value)
