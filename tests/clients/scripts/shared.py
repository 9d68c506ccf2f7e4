"""What the scripts have in common: a typed answer, a function, and how results are printed."""

import asyncio
import json
from collections.abc import Coroutine

from pydantic import BaseModel


class Place(BaseModel):
    """A place."""

    city: str


def get_weather(city: str) -> str:
    """The weather in a city.

    Args:
        city: The city's name.
    """
    return f"sunny in {city}"


def report(**results: object) -> None:
    print(json.dumps(results))


def report_awaited(**results: Coroutine[object, object, object]) -> None:
    async def awaited() -> dict[str, object]:
        return {name: await result for name, result in results.items()}

    report(**asyncio.run(awaited()))
