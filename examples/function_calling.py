"""A tool loop: the model calls a function of the client, reads the result, and answers."""

import json

import tour

client = tour.client()

TOOLS = [
    {
        "type": "function",
        "name": "get_weather",
        "description": "The weather in a city, now.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    }
]


def get_weather(city: str) -> dict[str, object]:
    return {"city": city, "temperature": 18, "unit": "celsius", "sky": "sunny"}


def call(name: str, arguments: str) -> str:
    """The text that the model reads: a result, or what was wrong with its call."""
    try:
        return json.dumps({"get_weather": get_weather}[name](**json.loads(arguments)))
    except (KeyError, TypeError, ValueError) as error:
        return json.dumps({"error": f"{type(error).__name__}: {error}"})


response = client.responses.create(input="What is the weather in Oslo?", tools=TOOLS)

for _ in range(5):
    calls = [item for item in response.output if item.type == "function_call"]
    if not calls:
        break
    results = []
    for item in calls:
        output = call(item.name, item.arguments)
        print(f"{item.name}({item.arguments}) -> {output}")
        results.append({"type": "function_call_output", "call_id": item.call_id, "output": output})
    response = client.responses.create(input=results, previous_response_id=response.id, tools=TOOLS)

print("Answer:", response.output_text)
