"""The official Python SDK: both APIs, streams, tools, parsed answers, the tool runner, WebSocket."""

import json
import os

from openai import OpenAI
from shared import Place, report

client = OpenAI(base_url=os.environ["BASE_URL"], api_key="any", max_retries=0)
model = "scripted"
function = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
tool = {"type": "function", "strict": False, **function}
first = client.responses.create(model=model, input="Weather in Paris?", tools=[tool])
call = next(item for item in first.output if item.type == "function_call")
result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
second = client.responses.create(model=model, previous_response_id=first.id, tools=[tool], input=[result])
with client.responses.stream(model=model, input="Hi") as stream:
    deltas = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
    streamed = stream.get_final_response().output_text
parsed = client.responses.parse(model=model, input="A city?", text_format=Place).output_parsed
messages = [{"role": "user", "content": "A city?"}]
chat = client.chat.completions.create(model=model, messages=messages)
typed = client.chat.completions.parse(model=model, messages=messages, response_format=Place)
with client.responses.connect() as connection:
    connection.response.create(model=model, input="Hi", store=False)
    socket = ""
    for event in connection:
        if event.type == "response.output_text.delta":
            socket += event.delta
        if event.type == "response.completed":
            break
report(
    call=[call.name, json.loads(call.arguments)],
    answer=second.output_text,
    retrieved=client.responses.retrieve(second.id).output_text,
    streamed=[streamed, deltas],
    parsed=parsed.city,
    chat=chat.choices[0].message.content,
    typed=typed.choices[0].message.parsed.city,
    socket=socket,
)
