"""Pages of the API's lists: `after`, `limit`, `order`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.http.validation import whole_number
from gpt_oss_server.stores.pages import UnknownItem, Wanted

T = TypeVar("T")
DEFAULT_LIMIT, MAX_LIMIT = 20, 100


def page(items: Sequence[dict[str, Any]], query: Mapping[str, str]) -> dict[str, Any]:
    """One page of `items`, which are sorted oldest first; the newest come first unless `order` is "asc"."""
    try:
        found = wanted_of(query).of(items)
    except UnknownItem as error:
        raise not_in_list(str(error)) from error
    return list_of(found.items, has_more=found.has_more)


def wanted_of(query: Mapping[str, str]) -> Wanted:
    return Wanted(limit_of(query), query.get("after"), newest_first=newest_first(query))


def list_of(shown: Sequence[dict[str, Any]], *, has_more: bool) -> dict[str, Any]:
    """The API's list object."""
    return {
        "object": "list",
        "data": list(shown),
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": has_more,
    }


def shown_page(
    found: Sequence[T] | None, most: int, after: str | None, show: Callable[[T], dict[str, Any]]
) -> dict[str, Any]:
    """The list object of what a store has `found`: one more than `most`, where there are more."""
    if found is None:
        raise not_in_list(str(after))
    return list_of([show(each) for each in found[:most]], has_more=len(found) > most)


def newest_first(query: Mapping[str, str]) -> bool:
    order = query.get("order", "desc")
    if order not in ("asc", "desc"):
        raise InvalidRequest.at("order", "must be 'asc' or 'desc'.")
    return order == "desc"


def limit_of(query: Mapping[str, str], *, default: int = DEFAULT_LIMIT, most: int = MAX_LIMIT) -> int:
    wanted = query.get("limit")
    if wanted is None:
        return default
    limit = whole_number(wanted)
    if limit is None or not 1 <= limit <= most:
        raise InvalidRequest.at("limit", f"must be a whole number from 1 to {most:,}.")
    return limit


def not_in_list(after: str) -> InvalidRequest:
    return InvalidRequest.at("after", f": no item with id {after!r} is in this list.")
