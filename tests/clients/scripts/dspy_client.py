"""DSPy over both APIs: a prediction, a chain of thought, an agent with a tool."""

import os

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # no look-up on the network
import dspy
from shared import get_weather, report


def results_of(model_type: str) -> dict[str, object]:
    where = {"api_base": os.environ["BASE_URL"], "api_key": "any", "num_retries": 0}
    model = dspy.LM("openai/scripted", model_type=model_type, cache=False, **where)
    with dspy.context(lm=model):
        plain = dspy.Predict("question -> answer")(question="A city?")
        thought = dspy.ChainOfThought("question -> answer")(question="A city?")
        agent = dspy.ReAct("question -> answer", tools=[get_weather])(question="Weather in Paris?")
    return {
        "plain": plain.answer,
        "thought": [thought.reasoning, thought.answer],
        "agent": [agent.answer, agent.trajectory["observation_0"]],
    }


report(chat=results_of("chat"), responses=results_of("responses"))
