"""Reads the model's arguments leniently into one of three frozen requests, or raises a `UsageError`."""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tools.browser.pages.document import UsageError

MAX_ARGUMENT_CHARS: Final = 65_536
MAX_QUERY_CHARS: Final = 2_000
MAX_PATTERN_CHARS: Final = 1_000
MAX_URL_CHARS: Final = 4_096
_LARGEST: Final = 10**9  # beyond any line, link or cursor

# An id as the page shows it: `3`, or the whole marker 【3†title】 copied.
_LINK_ID: Final = re.compile(r"【?\s*(-?[0-9]{1,9})\s*(?:†.*)?】?", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Search:
    query: str
    topn: int | None = None


@dataclass(frozen=True, slots=True)
class Open:
    link: int | None = None  # a link on the page at `cursor`
    url: str | None = None  # or an address; without either, the page itself
    cursor: int | None = None  # None: the newest
    loc: int | None = None
    num_lines: int | None = None
    view_source: bool = False


@dataclass(frozen=True, slots=True)
class Find:
    pattern: str
    cursor: int | None = None


Request = Search | Open | Find


def read_call(function: str, arguments: str) -> Request:
    match function:
        case "search":
            values = _read_object(arguments)
            query = _text(values, "query", MAX_QUERY_CHARS)
            return Search(query, _natural(values, "topn", "top_n") or None)
        case "open":
            return _read_open(_read_object(arguments))
        case "find":
            values = _read_object(arguments)
            return Find(_text(values, "pattern", MAX_PATTERN_CHARS), _natural(values, "cursor"))
        case _:
            known = "browser.search, browser.open, browser.find"
            raise UsageError(f"There is no function browser.{function[:64]}. The browser has {known}.")


def _read_object(arguments: str) -> Mapping[str, Any]:
    if len(arguments) > MAX_ARGUMENT_CHARS:
        raise UsageError(f"The arguments are longer than {MAX_ARGUMENT_CHARS} characters.")
    if not arguments.strip():
        return {}
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)[:200]
        raise UsageError(f"The arguments are not valid JSON ({reason}). Send one JSON object.") from error
    if not isinstance(value, dict):
        raise UsageError("The arguments must be one JSON object.")
    return value


def _read_open(values: Mapping[str, Any]) -> Open:
    link, url = _read_id(values.get("id"))
    if link is None and url is None:
        # `url` is not declared, but the slip is clear.
        link, url = _read_id(values.get("url"))
    return Open(
        link=link,
        url=url,
        cursor=_natural(values, "cursor"),
        loc=_natural(values, "loc"),
        num_lines=_natural(values, "num_lines") or None,
        view_source=_flag(values, "view_source"),
    )


def _read_id(value: object) -> tuple[int | None, str | None]:
    """A link's number or a URL; (None, None) for the default of -1."""
    if isinstance(value, str):
        text = value.strip()
        number = _LINK_ID.fullmatch(text)
        if number is None:
            if len(text) > MAX_URL_CHARS:
                raise UsageError(f"`id` is a URL of more than {MAX_URL_CHARS} characters.")
            return None, text or None
        value = int(number[1])
    return _to_natural("id", value), None


def _text(values: Mapping[str, Any], name: str, most: int) -> str:
    value = values.get(name)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        value = str(value)
    if isinstance(value, list):
        value = " ".join(str(part) for part in value)
    if not isinstance(value, str) or not value.strip():
        raise UsageError(f"`{name}` is missing: it must be a text that is not empty.")
    if len(value) > most:
        raise UsageError(f"`{name}` is longer than {most} characters.")
    # A lone surrogate (a \ud800 in the JSON) can be neither sent nor shown.
    return value.encode("utf-8", "replace").decode("utf-8").strip()


def _natural(values: Mapping[str, Any], *names: str) -> int | None:
    """The first value of these names; None if missing, null or negative (the default is -1)."""
    value = next((values[name] for name in names if values.get(name) is not None), None)
    return _to_natural(names[0], value)


def _to_natural(name: str, value: object) -> int | None:
    if isinstance(value, str):
        text = value.strip().strip("[]")
        if not text:
            return None
        try:
            value = float(text) if len(text) <= 32 else math.nan
        except ValueError:
            value = math.nan
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or math.isnan(value):
        raise UsageError(f"`{name}` must be a whole number, not {str(value)[:40]!r}.")
    if value < 0:
        return None
    return int(min(value, _LARGEST))


def _flag(values: Mapping[str, Any], name: str) -> bool:
    value = values.get(name)
    if isinstance(value, str):
        return value.strip().lower() in ("true", "1", "yes")
    return bool(value)
