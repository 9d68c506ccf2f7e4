"""Chat Completions: a stream of reasoning and words, then a function call and its result."""

import json
from typing import Any

import tour

client = tour.client()
MODEL = client.models.list().data[0].id

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "The weather in a city, now.",
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string"}},
                "required": ["city"],
            },
        },
    }
]

stream = client.chat.completions.create(
    model=MODEL, messages=[{"role": "user", "content": "Who are you?"}], stream=True
)
for chunk in stream:
    delta: Any = chunk.choices[0].delta
    if getattr(delta, "reasoning", None):  # `reasoning_content` repeats it for clients that read that name
        print("thinks:", delta.reasoning)
    if delta.content:
        print(delta.content, end="", flush=True)
print()

messages: list[Any] = [{"role": "user", "content": "What is the weather in Oslo?"}]
for _ in range(5):
    answer = client.chat.completions.create(model=MODEL, messages=messages, tools=TOOLS).choices[0]
    # Send back the whole message with its reasoning: within a tool loop, the model sees its earlier
    # reasoning.
    messages.append(answer.message.to_dict())
    if not answer.message.tool_calls:
        break
    for call in answer.message.tool_calls:
        print(f"{call.function.name}({call.function.arguments})")
        result = {"temperature": 18, "sky": "sunny"}
        messages.append({"role": "tool", "tool_call_id": call.id, "content": json.dumps(result)})
print(f"{answer.finish_reason}: {answer.message.content}")
