"""The public reference server, downloaded from the package index once, with a model that replays tokens.

Run as a program, this module serves it as published, with stand-ins for modules that it does not need.
"""

import importlib.machinery
import json
import os
import socket
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

PEER = "gpt-oss==0.0.9"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "gpt-oss-server" / "benchmarks"
# Imported by its browser and python tools, which no request of the benchmark enables.
UNUSED = {"aiohttp", "chz", "docker", "html2text", "jupyter_client", "lxml", "structlog", "tenacity"}
UNUSED |= {"termcolor", "tiktoken", "requests"}


def fetch_peer() -> Path:
    """Its package's folder. Raises CalledProcessError if the index cannot be reached."""
    folder = CACHE / PEER.replace("==", "-")
    if not (folder / "gpt_oss").is_dir():
        folder.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
        # The tests have taken the public certificates away, which newer versions of pip read from here.
        environment = {name: value for name, value in os.environ.items() if name != "SSL_CERT_DIR"}
        command += ["--ignore-requires-python", "--dest", str(folder), PEER]
        subprocess.run(command, check=True, env=environment)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            wheel.extractall(folder)
    return folder


@contextmanager
def peer_serving(folder: Path, completion: Sequence[int], scratch: Path) -> Iterator[int]:
    from tests.doubles.server_process import await_ready, free_port

    tokens, log = scratch / "completion.json", scratch / "peer.log"
    tokens.write_text(json.dumps(list(completion)))
    port = free_port()
    with log.open("wb") as output:
        command = [sys.executable, __file__, str(folder), str(port), str(tokens)]
        process = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            await_ready(process, lambda: _listens(port), lambda: log.read_text(errors="replace"), 60)
            yield port
        finally:
            process.kill()  # it needs no clean-up
            process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Anything:
    """Accepts any call and has any attribute."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a decorator, return the decorated object unchanged.
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


class StandIn(ModuleType):
    """A module in which every name is `Anything`."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Finder:
    """Finds the unused modules and their submodules if they are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        is_unused = name.partition(".")[0] in UNUSED
        return importlib.machinery.ModuleSpec(name, self) if is_unused else None  # type: ignore[arg-type]

    def create_module(self, spec: Any) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing, as a stand-in has no code."""


def main(folder: str, port: str, script: str) -> None:
    import uvicorn
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    sys.path.insert(0, folder)
    sys.meta_path.append(Finder())  # type: ignore[arg-type]
    from gpt_oss.responses_api.api_server import create_api_server  # type: ignore[import-not-found]

    completion: list[int] = json.loads(Path(script).read_text())
    prompt_length: list[int] = []

    def infer_next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
        """Infers its position from the number of tokens, as all prompts are the same."""
        if not prompt_length:
            prompt_length.append(len(tokens))
        return completion[len(tokens) - prompt_length[0]]

    app = create_api_server(infer_next_token, load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS))
    uvicorn.run(app, port=int(port), http="httptools", loop="uvloop", access_log=False, log_level="warning")


if __name__ == "__main__":
    main(*sys.argv[1:4])
