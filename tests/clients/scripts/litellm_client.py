"""LiteLLM: completion over Chat, with a stream and tools, and its own Responses call."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up on the network
import litellm
from shared import report

where = {"api_base": os.environ["BASE_URL"], "api_key": "any", "num_retries": 0}
parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
function = {"name": "get_weather", "description": "The weather in a city.", "parameters": parameters}
tools = [{"type": "function", "function": function}]
messages = [{"role": "user", "content": "Weather in Paris?"}]
first = litellm.completion(model="openai/scripted", messages=messages, tools=tools, **where)
call = first.choices[0].message.tool_calls[0]
result = {"role": "tool", "tool_call_id": call.id, "content": "sunny in Paris"}
messages += [first.choices[0].message.model_dump(), result]
second = litellm.completion(model="openai/scripted", messages=messages, tools=tools, **where)
chunks = list(litellm.completion(model="openai/scripted", messages=messages, stream=True, **where))
rebuilt = litellm.stream_chunk_builder(chunks)
hosted = litellm.completion(model="hosted_vllm/scripted", messages=messages[:1], **where)
response = litellm.responses(model="openai/scripted", input="Hi", **where)
*_, last = litellm.responses(model="openai/scripted", input="Hi", stream=True, **where)
report(
    call=[call.function.name, json.loads(call.function.arguments)],
    answer=second.choices[0].message.content,
    streamed=rebuilt.choices[0].message.content,
    reasoning=hosted.choices[0].message.reasoning_content,
    response=response.output_text,
    last=str(getattr(last.type, "value", last.type)),
)
