"""The way of a streamed token through the code is the one that docs/architecture.md describes."""

import sys
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpt_oss_server.harmony.encoding import load_encoding
from inference.engine import Sampling, Step
from tests.doubles.apis.api_client import Api
from tests.doubles.engines.replay import ReplayEngine

ROOT = Path(__file__).resolve().parents[2]
TURN = ["Generation.events", "Turn.events"]


class Watched(ReplayEngine):
    """Keeps the server's functions that wait for a token, from the engine outwards."""

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        async for step in super().generate(tokens, sampling):
            self.way: list[str] = []
            frame = sys._getframe().f_back
            while frame is not None:
                if Path(frame.f_code.co_filename).is_relative_to(ROOT / "gpt_oss_server"):
                    self.way.append(frame.f_code.co_qualname)
                frame = frame.f_back
            yield step

    async def check(self) -> None:
        """As the project's engines have it; the server counts the failures of others itself."""


MESSAGES = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("path", "body", "way"),
    [
        ("/responses", {"input": "Hi"}, [*TURN, "Run.events"]),
        ("/chat/completions", {"messages": MESSAGES}, [*TURN, "ChatRun._generate", "ChatRun.chunks"]),
        ("/completions", {"prompt": "Hi"}, ["CompletionRun._generate", "CompletionRun.chunks"]),
    ],
)
async def test_a_streamed_token_passes_few_stages(path: str, body: dict[str, Any], way: list[str]) -> None:
    engine = Watched(load_encoding().encode_special("<|channel|>final<|message|>Hello<|return|>"))
    answer = await Api(engine).client.post(path, json={**body, "stream": True})
    assert answer.status_code == 200
    assert engine.way[: engine.way.index("pump")] == way


@pytest.mark.parametrize("stage", [*TURN, "Run.events"])
def test_the_architecture_names_each_stage(stage: str) -> None:
    assert f"`{stage}`" in (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
