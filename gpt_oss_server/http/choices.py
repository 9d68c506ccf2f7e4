"""Fields of the bodies that request choices: how many, where they stop, how their stream is counted.

Chat and plain completions have the same ones.
"""

from __future__ import annotations

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.fields import Body, Boolean

MAX_CHOICES = 128  # OpenAI's limit
_MAX_STOPS = 64  # OpenAI's limit is four

Stop = str | list[str] | None


class StreamOptions(Body):
    include_usage: Boolean | None = None
    continuous_usage_stats: Boolean | None = None


def check_stops(stops: tuple[str, ...]) -> None:
    if len(stops) > _MAX_STOPS:
        raise InvalidRequest(f"`stop` may have {_MAX_STOPS} strings at most.", param="stop")
    if "" in stops:
        raise InvalidRequest("`stop` has an empty string, which would stop everywhere.", param="stop")
