"""What servers with OpenAI's list of models share: its entry for the model, and how they tokenise."""

from __future__ import annotations

from inference.engine import EngineFailed
from inference.remote.connection import Caller


async def listed_model(caller: Caller, title: str) -> tuple[str, int]:
    """The id of the model that generates, and its context's length."""
    models = await caller.get("/v1/models")
    try:
        model = next(each for each in models["data"] if each.get("max_model_len"))
        return str(model["id"]), int(model["max_model_len"])
    except (KeyError, TypeError, ValueError, StopIteration) as error:
        raise not_described(caller, title) from error


def not_described(caller: Caller, title: str) -> EngineFailed:
    return EngineFailed(f"{caller.url} does not describe its model as {title} does. Is it another server?")


def without_owner(model: str) -> str:
    return model.rstrip("/").rpartition("/")[2]


async def tokenised(caller: Caller, model: str, text: str) -> list[int]:
    answer = await caller.post("/tokenize", {"model": model, "prompt": text, "add_special_tokens": False})
    return list(answer["tokens"])
