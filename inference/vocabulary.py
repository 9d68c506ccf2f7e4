"""The library's Harmony vocabulary: returns the one of this process, which the first call loads in 0.3 s."""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

_loading = threading.Lock()


def harmony_vocabulary() -> Any:
    """Imports `openai_harmony`, which only scripts of text and the server need."""
    with _loading:  # a plain cache would load twice if the first two calls came from two threads
        return _load()


@cache
def _load() -> Any:
    import openai_harmony  # type: ignore[import-untyped, unused-ignore]

    return openai_harmony.load_harmony_encoding(openai_harmony.HarmonyEncodingName.HARMONY_GPT_OSS)
