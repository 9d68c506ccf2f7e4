"""Questions about the declared tools themselves: which exist, and what parameters one has."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from recipe.functions.tool_stock import Offer
from recipe.text import stock
from recipe.text.talk import Talk, Value, answer, message, plain, write
from recipe.text.words import choose

# The last of each list is for the held-out part.
_WHICH_TOOLS = (
    "Which tools can I use here?",
    "What tools are there?",
    "Show me your tools",
    "What functions can you call?",
    "Tell me your tools",
    "Tell me what tools are there",
    "Which functions do you have?",
    "Give me a list of your tools",
    "Say which functions you have",
    "Which tools do you have?",
    "What tools can you use?",
    "List your tools",
    "Which functions are there?",
    "What are your tools?",
    "Name the functions that you can call",
    "Tell me which tools you have",
)
_WHICH_FIELDS = (
    "What parameters does {f} have?",
    "What do I have to give {f}?",
    "Which parameters are there for {f}?",
    "Arguments of {f}",
    "Show me the parameters of {f}",
    "Give me the arguments of {f}",
    "Tell me what {f} takes",
    "What arguments are there for {f}?",
    "Say what the parameters of {f} are",
    "What are the parameters of {f}?",
    "Which arguments does {f} take?",
    "What does {f} need?",
    "List the parameters of {f}",
    "Name the arguments of {f}",
    "Parameters of {f}?",
    "Tell me the arguments of {f}",
)


def about_tools(rng: Random, talk: Talk, offers: Sequence[Offer], held_out: bool) -> None:
    """Asks for the tools, or for the parameters of one: this also teaches to look up a declaration."""
    if rng.random() < 0.25:
        talk.user(choose(rng, _WHICH_TOOLS, held_out, 1))
        start, names = "I have", [one.tool.name for one in offers]
        values = {}
    else:
        tool = rng.choice(offers).tool
        talk.user(choose(rng, _WHICH_FIELDS, held_out, 1).replace("{f}", tool.name))
        start, names = "{f} takes", list((tool.parameters or {}).get("properties", {})) or ["nothing"]
        values = {"f": Value(tool.name)}
    values |= {f"v{place}": Value(name) for place, name in enumerate(names)}
    template = f"{start} " + ", ".join(f"{{v{place}}}" for place in range(len(names))) + "."
    thoughts = message("analysis", write(stock.thought("tools", talk.effort), {}))
    body = answer(write(template, values))
    talk.turn(thoughts, body, must=[plain(template, values)], kind="tools")
