"""LiteLLM: completion over Chat and Messages, with a stream and tools, and its own Responses call."""

import json
import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up on the network
import litellm
from shared import report

where = {"api_base": os.environ["BASE_URL"], "api_key": "any", "num_retries": 0}
parameters = {"type": "object", "properties": {"city": {"type": "string"}}}
function = {"name": "get_weather", "description": "The weather in a city.", "parameters": parameters}
tools = [{"type": "function", "function": function}]
asked = [{"role": "user", "content": "Weather in Paris?"}]


def results_of(model: str) -> dict[str, object]:
    first = litellm.completion(model=model, messages=asked, tools=tools, **where)
    call = first.choices[0].message.tool_calls[0]
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny in Paris"}
    messages = [*asked, first.choices[0].message.model_dump(), result]
    second = litellm.completion(model=model, messages=messages, tools=tools, **where)
    chunks = list(litellm.completion(model=model, messages=messages, tools=tools, stream=True, **where))
    return {
        "call": [call.function.name, json.loads(call.function.arguments)],
        "answer": second.choices[0].message.content,
        "streamed": litellm.stream_chunk_builder(chunks).choices[0].message.content,
    }


chat = results_of("openai/scripted")
hosted = litellm.completion(model="hosted_vllm/scripted", messages=asked, **where)
response = litellm.responses(model="openai/scripted", input="Hi", **where)
*_, last = litellm.responses(model="openai/scripted", input="Hi", stream=True, **where)
where["api_base"] = where["api_base"].removesuffix("/v1")
messages = results_of("anthropic/scripted")
report(
    chat=chat,
    messages=messages,
    reasoning=hosted.choices[0].message.reasoning_content,
    response=response.output_text,
    last=str(getattr(last.type, "value", last.type)),
)
