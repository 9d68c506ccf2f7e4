"""What all tests share: asyncio under every async test, and one encoding for the whole run."""

from __future__ import annotations

import pytest

from gpt_oss_server.harmony.encoding import Encoding, load_encoding


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def encoding() -> Encoding:
    return load_encoding()
