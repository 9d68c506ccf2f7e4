"""The shortest context in which a conversation fits: what Harmony takes before anybody has written a word.

Takes the settings that are part of the system message. Returns a number of tokens.
"""

from __future__ import annotations

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.render import Renderer
from gpt_oss_server.settings import Settings

_WORD = "Hi"
_DATE = "2026-01-01"  # every date takes as many tokens


def least_context(settings: Settings) -> int:
    """The system message, a question of one word, and reasoning and an answer of one word each."""
    renderer = Renderer(load_encoding())
    conversation = (
        renderer.system(effort="medium", date=_DATE, identity=settings.identity),
        renderer.user(_WORD),
        renderer.reasoning(_WORD),
        renderer.answer(_WORD),
    )
    return sum(len(segment.tokens) for segment in conversation)
