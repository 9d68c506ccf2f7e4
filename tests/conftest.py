"""What all tests share: asyncio under every async test, and one encoding for the whole run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpt_oss_server.harmony.encoding import Encoding, load_encoding


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def encoding() -> Encoding:
    return load_encoding()


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What servers under test keep between their runs (the sealing key) stays out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder
