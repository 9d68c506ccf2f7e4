"""POST /v1/moderations."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import inference
from gpt_oss_server.apis.moderations.api import CATEGORIES
from gpt_oss_server.app import create_app
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.serving import scripted, serving


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    policy = tmp_path_factory.mktemp("policy") / "rules.md"
    policy.write_text("Recipes are harmless.")
    settings = Settings(moderation="guard", moderation_policy=str(policy))
    guard = inference.load("tiny", device="cpu", progress=False)
    with serving(scripted("."), settings, models={"guard": guard}) as base:
        yield base


def test_each_text_has_a_score_for_each_category(client: openai.OpenAI) -> None:
    texts = ["Bake for an hour.", "I hate it."]
    made = client.moderations.create(input=texts, model="omni-moderation-latest")
    assert (made.model, len(made.results)) == ("guard", 2)
    for result in made.results:
        scores = result.category_scores.model_dump(by_alias=True)
        flags = result.categories.model_dump(by_alias=True)
        assert set(scores) == set(flags) == set(CATEGORIES)
        assert all(0 <= score <= 1 for score in scores.values())
        assert flags == {name: score >= 0.5 for name, score in scores.items()}
        assert result.flagged == any(flags.values())
        assert result.category_applied_input_types.violence == ["text"]
    first = made.results[0].category_scores
    alone = client.moderations.create(input=[{"type": "text", "text": texts[0]}]).results[0]
    assert alone.category_scores.violence == pytest.approx(first.violence, abs=1e-4)
    policy = {"role": "developer", "content": "The policy:\n\nRecipes are harmless."}
    asked: Any = {"input": [policy, {"role": "user", "content": texts[0]}]}
    about = f"The user's text {CATEGORIES['violence']} (violence)."
    asked["questions"] = [{"type": "predicate", "instructions": about}]
    decision: Any = client.decisions.create(model="guard", **asked)
    assert decision.answers[0].probability == pytest.approx(first.violence, abs=1e-4)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a"] * 65}, "64"),
        ({"input": ["a", {"type": "text", "text": "b"}]}, "not both"),
        ({"input": [{"type": "image_url", "image_url": {"url": "data:,"}}]}, "cannot see images"),
        ({"input": "a", "model": "nobody"}, "is not served"),
    ],
)
def test_a_wrong_request_is_named(url: str, body: dict[str, Any], words: str) -> None:
    assert words in httpx.post(f"{url}/moderations", json=body).json()["error"]["message"]


def test_a_server_without_a_model_for_it_says_how(tmp_path: Path) -> None:
    with serving(scripted(".")) as base:
        error = httpx.post(f"{base}/moderations", json={"input": "a"}).json()["error"]
    assert "--moderation guard" in error["message"]
    with pytest.raises(SettingsError, match=r"must be a model that is served \(scripted\), not 'guard'"):
        create_app(scripted("."), Settings(moderation="guard"))
    with pytest.raises(SettingsError, match="cannot be read"):
        create_app(scripted("."), Settings(moderation_policy=str(tmp_path / "none")))
