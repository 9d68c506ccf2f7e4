"""One Postgres server for all tests of stores."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.doubles.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server
