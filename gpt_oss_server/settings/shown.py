"""Values of settings as they may be shown: in a file's form or as JSON, without secrets."""

import json
import re

from gpt_oss_server.settings.options import Option

HIDDEN = "(hidden)"
_USER = re.compile(r"(?<=://)[^/\s@]+@")  # the user and the password of a URL
_QUERY = re.compile(r"(?<=\?)[^\s#]+(?=$|\s|#)")


def is_hidden(option: Option, value: object) -> bool:
    """Whether the shown form lacks a secret."""
    return _hidden(option, value) != value


def as_json(option: Option, value: object) -> object:
    shown = _hidden(option, value)
    return list(shown) if isinstance(shown, tuple) else shown


def as_toml(option: Option, value: object) -> str:
    """As a row of a configuration file has it: sizes and times with their units."""
    shown = _hidden(option, value)
    if isinstance(shown, tuple):
        return f"[{', '.join(map(_text, shown))}]"
    if isinstance(shown, bool):
        return "true" if shown else "false"
    text = shown if isinstance(shown, str) else option.kind.show(shown)
    return text if re.fullmatch(r"\d+", text) and not isinstance(shown, str) else _text(text)


def _text(value: object) -> str:
    return json.dumps(str(value), ensure_ascii=False)


def _hidden(option: Option, value: object) -> object:
    if value is None or option.secret == "no":
        return value
    if option.secret == "whole":
        return (HIDDEN,) * len(value) if isinstance(value, tuple) else HIDDEN
    if isinstance(value, tuple):
        return tuple(without_secrets(str(part)) for part in value)
    return without_secrets(value) if isinstance(value, str) else value


def without_secrets(text: str) -> str:
    """The text without the users, passwords and queries of its URLs."""
    return _QUERY.sub("***", _USER.sub("***@", text)) if "://" in text else text
