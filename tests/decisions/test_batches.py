"""A batch of decisions, through the official SDK."""

import inference
from tests.batches.test_batches import answers, begun, ended
from tests.doubles.apis.api_client import client_with
from tests.doubles.stored import known


def test_a_batch_decides_for_each_of_many_inputs() -> None:
    ask = {"questions": [{"type": "predicate", "instructions": "It rains."}]}
    shared = {"method": "POST", "url": "/v1/decisions"}
    texts = ("Take an umbrella.", "The sun shines.")
    lines = [{**shared, "custom_id": words, "body": {"input": words, **ask}} for words in texts]
    with client_with(inference.load("random:tiny", device="cpu", progress=False)) as client:
        batch = ended(client, begun(client, *lines, endpoint="/v1/decisions"))
        read = answers(client, batch.output_file_id)
    assert list(read) == [line["custom_id"] for line in lines]
    assert all(0 < each["response"]["body"]["answers"][0]["probability"] < 1 for each in read.values())
    assert known(batch.usage).output_tokens == len(lines)
