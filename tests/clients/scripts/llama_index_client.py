"""LlamaIndex over both APIs: an agent with a tool, a stream, a typed answer."""

import os

from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.llms import ChatMessage
from llama_index.llms.openai_like import OpenAILike, OpenAILikeResponses
from shared import Place, get_weather, report_awaited


async def results_of(model_class: type) -> dict[str, object]:
    where = {"api_base": os.environ["BASE_URL"], "api_key": "any", "max_retries": 0}
    model = model_class(model="scripted", is_chat_model=True, is_function_calling_model=True, **where)
    agent = FunctionAgent(tools=[get_weather], llm=model, system_prompt="Be brief.")
    whole = await agent.run("Weather in Paris?")
    question = [ChatMessage(role="user", content="Hi")]
    streamed = "".join([chunk.delta or "" for chunk in model.stream_chat(question)])
    typed = model.as_structured_llm(Place).complete("A city?")
    return {"whole": str(whole), "streamed": streamed, "typed": typed.raw.city}


report_awaited(chat=results_of(OpenAILike), responses=results_of(OpenAILikeResponses))
