"""Pages of stored items, by the query of a request.

Takes the query, and a function that reads a page from a store. Returns the page or raises an
`InvalidRequest`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from gpt_oss_server.http.paging import limit_of, list_of, newest_first, not_in_list, page
from gpt_oss_server.stores.base import Store, StoredResponse
from gpt_oss_server.stores.pages import ItemPage, UnknownItem, Wanted


async def listed(
    read: Callable[[Wanted], Awaitable[ItemPage | None]], query: Mapping[str, str]
) -> dict[str, Any] | None:
    """The API's list object; None where `read` finds no such list."""
    wanted = Wanted(limit_of(query), query.get("after"), newest_first=newest_first(query))
    try:
        found = await read(wanted)
    except UnknownItem as error:
        raise not_in_list(str(error)) from error
    return None if found is None else list_of(found.items, has_more=found.has_more)


async def listed_input(
    store: Store,
    retrieve: Callable[[str], Awaitable[StoredResponse]],
    response_id: str,
    query: Mapping[str, str],
) -> dict[str, Any]:
    """A page of a response's input. `retrieve` finds one that still runs, or raises."""
    found = await listed(lambda wanted: store.input_page(response_id, wanted), query)
    return page((await retrieve(response_id)).input_items, query) if found is None else found
