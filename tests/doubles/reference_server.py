"""Launches the public reference server (`gpt-oss` on PyPI) with a model that replays given tokens.

Takes its folder, a port, and a JSON file of token ids. Stand-ins replace modules that it imports for its
tools but does not use here. The server itself runs as published, with the same uvicorn options as
gpt-oss-server.
"""

from __future__ import annotations

import importlib.machinery
import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import uvicorn

# Imported by its browser and python tools, which no request of the benchmark enables.
UNUSED = (
    "aiohttp",
    "chz",
    "docker",
    "html2text",
    "jupyter_client",
    "lxml",
    "structlog",
    "tenacity",
    "termcolor",
)
UNUSED += ("tiktoken", "requests")


class StandIn(ModuleType):
    """A module in which every name is an object that accepts any call and has any attribute."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything()


class Anything:
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        # As a decorator, return the decorated object unchanged.
        return args[0] if len(args) == 1 and callable(args[0]) and not kwargs else self

    def __getattr__(self, name: str) -> Any:
        return Anything()

    def __mro_entries__(self, bases: Any) -> tuple[type, ...]:
        return (object,)


class Finder:
    """Finds the unused modules and their submodules if they are not installed."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.partition(".")[0] in UNUSED:
            return importlib.machinery.ModuleSpec(name, self)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: Any) -> ModuleType:
        return StandIn(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """Does nothing, as a stand-in has no code."""


def replaying(completion: list[int]) -> Any:
    """A function that infers its position from the number of tokens, as all prompts are the same."""
    prompt_length: list[int] = []

    def infer_next_token(tokens: list[int], temperature: float = 0.0, new_request: bool = False) -> int:
        if not prompt_length:
            prompt_length.append(len(tokens))
        return completion[len(tokens) - prompt_length[0]]

    return infer_next_token


if __name__ == "__main__":
    folder, port, script = sys.argv[1:4]
    sys.path.insert(0, folder)
    sys.meta_path.append(Finder())  # type: ignore[arg-type]

    from gpt_oss.responses_api.api_server import create_api_server  # type: ignore[import-not-found]
    from openai_harmony import HarmonyEncodingName, load_harmony_encoding

    infer_next_token = replaying(json.loads(Path(script).read_text()))
    app = create_api_server(infer_next_token, load_harmony_encoding(HarmonyEncodingName.HARMONY_GPT_OSS))
    uvicorn.run(app, port=int(port), http="httptools", loop="uvloop", access_log=False, log_level="warning")
