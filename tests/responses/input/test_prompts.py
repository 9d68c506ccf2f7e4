"""Prompt templates that the server's operator keeps, through the official SDK."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.app import create_app
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.serving import scripted, serving

ANSWER = "<|channel|>final<|message|>Fine.<|return|>"
TEMPLATES: dict[str, Any] = {
    "guide": {
        "instructions": "You know {{ city }}.",
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "Read {{city}}'s map."},
                    {"type": "input_text", "text": "{{map}}"},
                ],
            }
        ],
        "temperature": 0.5,
        "metadata": {"of": "{{city}}"},
    },
    "guide@2": {"instructions": "Version two."},
    "list": [],
}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    folder = tmp_path_factory.mktemp("prompts")
    for name, template in TEMPLATES.items():
        (folder / f"{name}.json").write_text(json.dumps(template))
    (folder / "broken.json").write_text("{")
    settings = Settings(prompts=str(folder))
    with serving(scripted(ANSWER), settings) as url, openai.OpenAI(base_url=url, api_key="any") as made:
        yield made


def text_of(client: openai.OpenAI, **body: Any) -> str:
    return str(client.post("/../render", body=body, cast_to=dict)["text"])


def test_a_template_gives_the_fields_that_the_request_lacks(client: openai.OpenAI) -> None:
    map_part = {"type": "input_file", "filename": "map.txt", "file_data": "data:text/plain;base64,Tm9ydGg="}
    prompt: Any = {"id": "guide", "variables": {"city": "Oslo", "map": map_part}}
    text = text_of(client, prompt=prompt, input="And now?")
    assert text.index("You know Oslo.") < text.index("Read Oslo's map.") < text.index("And now?")
    assert "North" in text
    response = client.responses.create(prompt=prompt, metadata={"own": "yes"})
    assert response.prompt is not None
    assert (response.prompt.id, response.temperature) == ("guide", 0.5)
    assert (response.metadata, response.instructions) == ({"own": "yes"}, "You know Oslo.")
    later = text_of(client, prompt=prompt, previous_response_id=response.id, input="Go on.")
    assert later.count("Read Oslo's map.") == 1
    assert "Version two." in text_of(client, prompt={"id": "guide", "version": "2"}, input="Hi")


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ({"id": "guide", "variables": {"city": "Oslo"}}, "variables.map"),
        ({"id": "guide", "variables": {"city": "a", "map": "b", "sea": "c"}}, "no variable of the template"),
        ({"id": "guide", "variables": {"city": {"type": "input_image"}, "map": "b"}}, "must be a text"),
        ({"id": "guide", "variables": {"city": "a", "map": {"type": "else"}}}, "must be one of"),
        ({"id": "guide", "variables": "a"}, "must be an object"),
        ({"id": "guide", "version": "3"}, "no prompt template 'guide@3'"),
        ({"id": "../guide"}, "the `id` of a template"),
        ({}, "the `id` of a template"),
        ({"id": "broken"}, "is not JSON"),
        ({"id": "list"}, "is no object"),
    ],
)
def test_a_wrong_prompt_is_named(client: openai.OpenAI, prompt: Any, words: str) -> None:
    with pytest.raises(openai.APIStatusError, match=words) as caught:
        client.responses.create(input="Hi", prompt=prompt)
    assert caught.value.status_code in (400, 404)


def test_a_server_without_templates_says_how_to_keep_some() -> None:
    with (
        serving(scripted(ANSWER)) as url,
        openai.OpenAI(base_url=url, api_key="any") as client,
        pytest.raises(openai.BadRequestError, match="--prompts DIR"),
    ):
        client.responses.create(input="Hi", prompt={"id": "guide"})
    with pytest.raises(SettingsError, match="no folder"):
        create_app(scripted(ANSWER), Settings(prompts=str(Path("/no/such/folder"))))
