"""Tokens as a terminal shows them: spaces are visible, special tokens differ from text that spells them."""

import json


def is_special(token: int) -> bool:
    from gpt_oss_server.harmony.encoding import FIRST_SPECIAL

    return token >= FIRST_SPECIAL


def token_line(token: int) -> str:
    """The id and the text: in quotes, or bare for a special token."""
    from gpt_oss_server.harmony.encoding import load_encoding

    encoding = load_encoding()
    if is_special(token):
        return f"{token:>6}  {encoding.decode([token])}"
    raw = encoding.token_bytes([token])
    try:
        return f"{token:>6}  {json.dumps(raw.decode('utf-8'), ensure_ascii=False)}"
    except UnicodeDecodeError:  # a part of a character
        return f"{token:>6}  {raw!r}"
