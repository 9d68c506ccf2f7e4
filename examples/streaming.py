"""Show the reasoning and the answer while the model writes them."""

import tour

client = tour.client()
model = client.models.list().data[0].id  # this SDK helper requires a name; `create` does not

with client.responses.stream(model=model, input="Who are you?") as stream:
    for event in stream:
        if event.type == "response.output_item.added":
            print(f"\n[{event.item.type}] ", end="")
        elif event.type in ("response.reasoning_text.delta", "response.output_text.delta"):
            print(event.delta, end="", flush=True)
        elif event.type in ("response.completed", "response.incomplete", "response.failed"):
            response = event.response

usage = response.usage
print(f"\n\n{response.status}: {usage.input_tokens} tokens in, {usage.output_tokens} out,")
print(f"{usage.output_tokens_details.reasoning_tokens} of them reasoning.")
