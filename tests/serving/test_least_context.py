"""In the least context, a question of one word gets a whole answer; with one token less, it does not."""

from __future__ import annotations

import pytest

from gpt_oss_server.models.limits import least_context
from gpt_oss_server.settings import Settings
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from tests.doubles.apis.api_client import Api
from tests.doubles.serving import VOCABULARY

TURN = "<|channel|>analysis<|message|>Hi<|end|><|start|>assistant<|channel|>final<|message|>Hi<|return|>"


@pytest.mark.parametrize("identity", [None, "You are a lighthouse keeper, and answer as one."])
@pytest.mark.parametrize(("missing", "status"), [(0, "completed"), (1, "incomplete")])
async def test_the_least_context_is_just_enough(identity: str | None, missing: int, status: str) -> None:
    settings = Settings(identity=identity)
    context = least_context(settings) - missing
    engine = ScriptedEngine(parse_script({"turns": [TURN]}, VOCABULARY), context=context)
    response = await Api(engine, settings).create(input="Hi")
    assert response["status"] == status
