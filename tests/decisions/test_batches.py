"""A batch of decisions, through the official SDK."""

import openai

import inference
from tests.batches.test_batches import answers, begun, ended
from tests.doubles.serving import serving


def test_a_batch_decides_for_each_of_many_inputs() -> None:
    ask = {"questions": [{"type": "predicate", "instructions": "It rains."}]}
    lines = [
        {"custom_id": words, "method": "POST", "url": "/v1/decisions", "body": {"input": words, **ask}}
        for words in ("Take an umbrella.", "The sun shines.")
    ]
    engine = inference.load("random:tiny", device="cpu", progress=False)
    with serving(engine) as url, openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        batch = ended(client, begun(client, *lines, endpoint="/v1/decisions"))
        read = answers(client, batch.output_file_id)
    assert list(read) == [line["custom_id"] for line in lines]
    assert all(0 < each["response"]["body"]["answers"][0]["probability"] < 1 for each in read.values())
    assert batch.usage is not None
    assert batch.usage.output_tokens == len(lines)
