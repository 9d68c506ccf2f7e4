"""For whom the engine works when requests come over WebSockets: it shares its slots among owners."""

from __future__ import annotations

from pathlib import Path

from gpt_oss_server.harmony.encoding import Encoding
from gpt_oss_server.settings import Settings
from tests.doubles.apis.keyed import ALICE, MALLORY, ask, key_file, socket_of
from tests.doubles.engines.replay import ReplayEngine
from tests.doubles.serving import serving


def owners(encoding: Encoding, settings: Settings) -> list[str]:
    """Of two requests by each of two clients, in turn."""
    engine = ReplayEngine(encoding.encode_special("<|channel|>final<|message|>Hi<|return|>"))
    with (
        serving(engine, settings) as url,
        socket_of(url, ALICE) as one,
        socket_of(url, MALLORY) as other,
    ):
        for socket in (one, other) * 2:
            assert ask(socket)["type"] == "response.completed"
    return [sampling.owner for sampling in engine.samplings]


def test_without_keys_each_connection_is_an_owner(encoding: Encoding) -> None:
    found = owners(encoding, Settings(python="off"))
    assert all(found)
    assert found[:2] == found[2:]
    assert found[0] != found[1]


def test_with_keys_each_name_is_an_owner(encoding: Encoding, tmp_path: Path) -> None:
    settings = Settings(python="off", api_key_file=key_file(tmp_path))
    assert owners(encoding, settings) == ["alice", "mallory"] * 2
