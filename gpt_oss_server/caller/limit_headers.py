"""What is left of a limit, in the headers that OpenAI's SDKs and agents read."""

from __future__ import annotations

import math

from gpt_oss_server.stores.allowances import Left


def limit_headers(kind: str, left: Left) -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{kind}": str(left.charge.limit),
        f"x-ratelimit-remaining-{kind}": str(max(0, math.floor(left.amount))),
        f"x-ratelimit-reset-{kind}": duration(left.seconds_until_full),
    }


def duration(seconds: float) -> str:
    """A time as OpenAI's service spells it: 250ms, 7.66s, 6m0s."""
    milliseconds = math.ceil(seconds * 1000)
    if milliseconds < 1000:
        return f"{milliseconds}ms"
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:g}s"
    minutes, rest = divmod(math.ceil(milliseconds / 1000), 60)
    return f"{minutes}m{rest}s"
