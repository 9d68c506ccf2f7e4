"""Tokens as a terminal shows them: spaces are visible, special tokens differ from text that spells them."""

import json
import math
import re
from collections.abc import Callable

_SPECIAL = re.compile(r"<\|[a-z0-9_]+\|>")


def is_special(token: int) -> bool:
    from gpt_oss_server.harmony.encoding import FIRST_SPECIAL

    return token >= FIRST_SPECIAL


def token_line(token: int, logprob: float | None = None) -> str:
    """The id and the text: in quotes, or bare for a special token; with its probability where it is known."""
    return f"{token:>6}{chance(logprob)}  {token_text(token)}"


def chance(logprob: float | None) -> str:
    return "" if logprob is None else f"  {math.exp(logprob):7.2%}"


def token_text(token: int) -> str:
    from gpt_oss_server.harmony.encoding import load_encoding

    encoding = load_encoding()
    if is_special(token):
        return encoding.decode([token])
    raw = encoding.token_bytes([token])
    try:
        return json.dumps(raw.decode("utf-8"), ensure_ascii=False)
    except UnicodeDecodeError:  # a part of a character
        return repr(raw)


def marked(text: str, style: Callable[[str], str]) -> str:
    """The text of a prompt with its special tokens styled."""
    return _SPECIAL.sub(lambda token: style(token[0]), text)
