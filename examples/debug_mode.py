"""Read what the model really read and wrote: the Harmony text of a response."""

import json

import tour

client = tour.client()

response = client.responses.create(
    input="Who are you?", extra_body={"metadata": {"__debug": True, "ticket": "42"}}
)

metadata = response.metadata or {}
print("Prompt:", metadata["__debug_input"])
print("Completion:", metadata["__debug_output"])
ids, logprobs = (json.loads(metadata[f"__debug_output_{key}"]) for key in ("ids", "logprobs"))
print("Its tokens:", list(zip(ids, logprobs, strict=True))[:5], "…")
for warning in json.loads(metadata["__debug_warnings"]):
    print("Slip:", warning["kind"], warning["detail"])
print("The client's own key is kept:", metadata["ticket"])
