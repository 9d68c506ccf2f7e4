"""A batch of decisions, through the official SDK."""

import json
import time

import openai

import inference
from tests.doubles.serving import serving

ENDED = ("completed", "failed", "expired", "cancelled")


def test_a_batch_decides_for_each_of_many_inputs() -> None:
    ask = {"questions": [{"type": "predicate", "instructions": "It rains."}]}
    lines = [
        {"custom_id": words, "method": "POST", "url": "/v1/decisions", "body": {"input": words, **ask}}
        for words in ("Take an umbrella.", "The sun shines.")
    ]
    engine = inference.load("random:tiny", device="cpu", progress=False)
    with serving(engine) as url, openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        content = "\n".join(map(json.dumps, lines)).encode()
        file = client.files.create(file=("inputs.jsonl", content), purpose="batch")
        begun = {"input_file_id": file.id, "endpoint": "/v1/decisions", "completion_window": "24h"}
        batch = client.batches.create(**begun)
        until = time.monotonic() + 60
        while batch.status not in ENDED:
            assert time.monotonic() < until, batch
            time.sleep(0.1)
            batch = client.batches.retrieve(batch.id)
        assert batch.output_file_id is not None, batch
        read = [json.loads(each) for each in client.files.content(batch.output_file_id).text.splitlines()]
    assert [each["custom_id"] for each in read] == [line["custom_id"] for line in lines]
    assert all(0 < each["response"]["body"]["answers"][0]["probability"] < 1 for each in read)
    assert batch.usage is not None
    assert batch.usage.output_tokens == len(lines)
