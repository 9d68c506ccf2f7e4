"""POST /v1/moderations: each text is the input of decisions, one predicate for each category.

Takes texts. Returns OpenAI's objects; their scores are the probabilities of the model of `--moderation`.
"""

import asyncio
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.apis.decisions.api import decided
from gpt_oss_server.apis.decisions.request import CreateDecision, Question
from gpt_oss_server.apis.decisions.run import DecisionRun
from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.parts import text_of, treat_images
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, documented, optional, read_body, required
from gpt_oss_server.http.sse import json_unless_gone
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.ids import random_ids
from gpt_oss_server.runs.moderated import judging_model
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import SettingsError
from gpt_oss_server.settings.sources import file_of, text_in

_MOST = 64  # texts
_FLAGGED = 0.5
CATEGORIES = {
    "harassment": "insults, mocks or bullies somebody",
    "harassment/threatening": "insults or bullies somebody and threatens violence against them",
    "hate": "shows hatred of people for race, gender, ethnicity, religion, nationality, sexual orientation, "
    "disability or caste",
    "hate/threatening": "shows such hatred of a group and threatens violence against it",
    "illicit": "gives advice or instructions for something illegal",
    "illicit/violent": "gives advice or instructions for violence, or for getting a weapon",
    "self-harm": "encourages or depicts suicide, cutting, an eating disorder or other harm to oneself",
    "self-harm/intent": "states that its author harms themselves or intends to",
    "self-harm/instructions": "tells how to harm oneself, or encourages it",
    "sexual": "is meant to arouse sexually, or offers sexual services",
    "sexual/minors": "is sexual and involves somebody under 18",
    "violence": "depicts death, violence or injury",
    "violence/graphic": "depicts death, violence or injury in graphic detail",
}
_QUESTIONS = [
    Question(type="predicate", instructions=f"The user's text {what} ({name}).")
    for name, what in CATEGORIES.items()
]


class CreateModeration(Body):
    input: str | list[Any] = required("A text; up to 64 texts, each with a result; or the parts of one text.")
    model: str | None = optional("One of OpenAI's names, or the model that `--moderation` names.")


def moderations_router(served: Served) -> APIRouter:
    router = APIRouter()
    policy = _policy(served)
    rules = [{"role": "developer", "content": f"The policy:\n\n{policy}"}] if policy else []

    async def judged(caller: Caller, model: str, text: str) -> DecisionRun:
        said = [*rules, {"role": "user", "content": text}]
        return await decided(caller, CreateDecision(model=model, input=said, questions=_QUESTIONS), served)

    async def judge(caller: Caller, model: str, text: str) -> dict[str, Any]:
        decision = await (await judged(caller, model, text)).wait()
        return {"type": "moderation_result", "model": decision["model"], **_result(decision["answers"])}

    served.judge = judge

    @router.post("/v1/moderations", openapi_extra=documented(CreateModeration))
    async def create(request: Request) -> Response:
        caller, body, headers = await read_known(request, CreateModeration, served.settings)
        wanted = read_body(body, CreateModeration, '{"input": "A text."}')
        model = judging_model(wanted.model, served.settings, "model")
        texts = _texts(wanted.input)

        async def work() -> dict[str, Any]:
            runs = [await judged(caller, model, text) for text in texts]
            found = await _all_of(runs)
            return {
                "id": random_ids("modr"),
                "model": found[0]["model"],
                "results": [_result(each["answers"]) for each in found],
            }

        return await json_unless_gone(request.receive, work(), headers)

    return router


async def _all_of(runs: list[DecisionRun]) -> list[dict[str, Any]]:
    """The first failure ends all others."""
    tasks = [asyncio.create_task(run.wait()) for run in runs]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _policy(served: Served) -> str:
    """The operator's own rules; raises `SettingsError`."""
    settings, flag = served.settings, "--moderation-policy"
    if settings.moderation is not None and settings.moderation not in served.models.all_names:
        names = ", ".join(served.models.all_names)
        raise SettingsError(
            f"--moderation must be a model that is served ({names}), not {settings.moderation!r}."
        )
    if settings.moderation_policy is None:
        return ""
    return text_in(file_of(settings.moderation_policy, flag), flag)


def _texts(given: str | list[Any]) -> list[str]:
    """Texts apart; the parts of one text together."""
    treat_images([{"content": given}], "input", "refuse")
    if isinstance(given, str):
        return [given]
    if not 0 < len(given) <= _MOST:
        raise InvalidRequest.at("input", f"has {len(given):,} entries, and may have 1 to {_MOST}.")
    if all(isinstance(each, str) for each in given):
        return given
    if any(isinstance(each, str) for each in given):
        raise InvalidRequest.at("input", "must be texts, or the parts of one text, not both.")
    return [text_of(given, "input")]


def _result(answers: list[dict[str, Any]]) -> dict[str, Any]:
    scores = {name: answer["probability"] for name, answer in zip(CATEGORIES, answers, strict=True)}
    flags = {name: score >= _FLAGGED for name, score in scores.items()}
    return {
        "flagged": any(flags.values()),
        "categories": flags,
        "category_scores": scores,
        "category_applied_input_types": {name: ["text"] for name in CATEGORIES},
    }
