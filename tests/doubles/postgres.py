"""A real Postgres server in a temporary folder, run by an unprivileged user."""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from pathlib import Path

import pytest

from tests.doubles.server_process import free_port

_USER = "postgres"  # initdb and pg_ctl refuse to run as root
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_KEPT = 3
_numbers = count(1)


@cache
def programs() -> Path | None:
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else _FOLDERS
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def missing() -> str | None:
    if programs() is None:
        return "Postgres is not installed (Debian: apt install postgresql)"
    try:
        import psycopg  # noqa: F401
    except ImportError:
        return "psycopg is not installed (pip install '.[postgres]')"
    return None


@dataclass(frozen=True)
class Postgres:
    folder: Path
    port: int

    def start(self) -> None:
        options = f"-p {self.port} -k {self.folder} -c listen_addresses=127.0.0.1 -c max_connections=300"
        options += " -c fsync=off"  # no test cuts the power
        options += " -c wal_writer_delay=10s"  # a crash loses what no commit has written
        self._run("pg_ctl", "-D", self.data, "-w", "-l", f"{self.folder}/log", "-o", options, "start")

    def stop(self, mode: str = "fast") -> None:
        self._run("pg_ctl", "-D", self.data, "-w", "-m", mode, "stop")

    def new_database(self) -> str:
        """The URL of an empty database. All but the last few are dropped."""
        import psycopg

        number = next(_numbers)
        with psycopg.connect(self.url("postgres"), autocommit=True) as connection:
            connection.execute(f"DROP DATABASE IF EXISTS test_{max(number - _KEPT, 0)} WITH (FORCE)")
            connection.execute(f"CREATE DATABASE test_{number}")
        return self.url(f"test_{number}")

    def url(self, database: str) -> str:
        return f"postgres://{_USER}@127.0.0.1:{self.port}/{database}"

    @property
    def data(self) -> str:
        return f"{self.folder}/data"

    def _run(self, program: str, *words: str) -> None:
        folder = programs()
        assert folder is not None
        command = [str(folder / program), *words]
        if os.geteuid() == 0:
            command = ["runuser", "-u", _USER, "--", *command]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd="/")
        assert done.returncode == 0, done.stdout


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Skips the test, or fails it on CI, where no server can be started."""
    if (why := missing()) is not None:
        if os.environ.get("CI"):
            pytest.fail(f"{why}, and CI must test it")
        pytest.skip(why)
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, _USER)
        server = Postgres(folder, free_port())
        server._run("initdb", "-D", server.data, "-A", "trust", "-U", _USER, "-E", "UTF8", "--no-sync")
        server.start()
        try:
            yield server
        finally:
            server.stop("immediate")
