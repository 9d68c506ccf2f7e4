"""Fixtures of all tests: asyncio for every async test, one encoding for the whole run, no time limits."""

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from gpt_oss_server.harmony.encoding import Encoding, load_encoding

# No deadline for property tests: a slow machine is not a defect.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The slow tests begin first: one that begins last is waited for while all other cores are idle."""
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


def pytest_collection_finish() -> None:
    """Libraries and collected tests stay to the end: the garbage collector need not visit them each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def encoding() -> Encoding:
    return load_encoding()


@pytest.fixture(scope="module")
def client(url: str) -> Iterator[Any]:
    """OpenAI's client of the server that a module's `url` names."""
    import openai  # most tests do without it

    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture(scope="session", autouse=True)
def _own_state_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Keeps the state of servers under test (the sealing key) out of the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("state")
        patch.setenv("XDG_STATE_HOME", str(folder))
        yield folder


@pytest.fixture(scope="session", autouse=True)
def _no_public_authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A client of HTTP reads every public certificate, in 25 ms. No test connects to a public server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("SSL_CERT_FILE", raising=False)
        patch.setenv("SSL_CERT_DIR", str(tmp_path_factory.mktemp("authorities")))
        yield
