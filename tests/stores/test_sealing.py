"""Only the server that sealed a text can open it, and only for the same purpose."""

import base64
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.sealing import Sealer, server_sealer

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
    file = tmp_path / "key"
    file.write_text("  short \n")
    for name, sentence in (
        (file, "at least 32 characters"),
        (file / "key", r"--sealing-key-file: .*key/key cannot be read or created"),
        ("~nobody-of-this-name/key", "~nobody-of-this-name/key names no file"),
    ):
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
