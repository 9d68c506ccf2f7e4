"""Types the blocks of a page as they stand, except for the address: that of a served server."""

import io
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout

from openai import OpenAI

from tests.doubles.pages.blocks import ADDRESS, Block
from tests.doubles.server_process import Served


@contextmanager
def shared_names(**given: object) -> Iterator[dict[str, object]]:
    """The names that the Python blocks of a page share.

    The clients among them are closed at the end; the garbage collector would warn of them.
    """
    names = dict(given)
    try:
        yield names
    finally:
        for found in names.values():
            if isinstance(found, OpenAI):
                found.close()


def run_python(block: Block, served: Served, names: dict[str, object]) -> str:
    printed = io.StringIO()
    with redirect_stdout(printed):
        exec(compile(block.code.replace(ADDRESS, served.url), str(block), "exec"), names)
    return printed.getvalue()


def run_curl(command: str, served: Served) -> str:
    local = command.replace(ADDRESS, served.url)
    done = subprocess.run(["bash", "-c", local], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout
