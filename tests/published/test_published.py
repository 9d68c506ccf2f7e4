"""Answers that are no streams of Responses fit the published schemas; `tests.doubles.lints` has the rest."""

import json

import httpx

from tests.doubles.published.check import check_object, check_response
from tests.doubles.serving import scripted, serving

HELLO = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant<|channel|>final<|message|>Hi!<|return|>"


def test_answers_that_are_not_streams_are_accepted() -> None:
    chat = {"messages": [{"role": "user", "content": "Hi"}], "logprobs": True, "top_logprobs": 1}
    with serving(scripted(HELLO)) as url, httpx.Client(base_url=url, timeout=60) as client:
        response = client.post("/responses", json={"input": "Hi"}).json()
        check_response(response)
        check_response(client.get(f"/responses/{response['id']}").json())
        items = client.get(f"/responses/{response['id']}/input_items").json()
        check_object("ResponseItemList", items)
        check_object("CreateChatCompletionResponse", client.post("/chat/completions", json=chat).json())
        check_object("CreateCompletionResponse", client.post("/completions", json={"prompt": "Hi"}).json())
        check_object("ListModelsResponse", client.get("/models").json())
        check_object("ErrorResponse", client.post("/responses", json={"input": 7}).json())
        chunks = client.post("/chat/completions", json={**chat, "stream": True}).text.splitlines()
        for line in chunks:
            if line.startswith("data: {"):
                check_object("CreateChatCompletionStreamResponse", json.loads(line[6:]))
