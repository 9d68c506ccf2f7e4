"""Routes that call one operation of an API with the values of the path, then the body or the query."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.http.edge import caller_of
from gpt_oss_server.http.fields import Body, documented
from gpt_oss_server.http.large_work import json_answer
from gpt_oss_server.http.unknown_fields import read_known
from gpt_oss_server.settings import Settings


@dataclass(frozen=True, slots=True)
class Route:
    method: str
    path: str
    operation: Callable[..., Awaitable[Any]]
    body: type[Body] | None = None  # the model of the body that the operation takes
    lists: bool = False  # it takes the query


def add_routes(
    router: APIRouter, settings: Settings, api_of: Callable[[Caller], Any], *routes: Route
) -> None:
    for route in routes:
        extra = None if route.body is None else documented(route.body)
        endpoint = _endpoint(route, settings, api_of)
        router.add_api_route(route.path, endpoint, methods=[route.method], openapi_extra=extra)


def _endpoint(route: Route, settings: Settings, api_of: Callable[[Caller], Any]) -> Callable[..., Any]:
    async def endpoint(request: Request) -> Response:
        caller = caller_of(request.scope)
        headers: dict[str, str] = {}
        values: list[Any] = [*request.path_params.values()]
        if route.body is not None:
            caller, body, headers = await read_known(request, route.body, settings)
            values.append(body)
        elif route.lists:
            values.append(request.query_params)
        answer = await route.operation(api_of(caller), *values)
        return await json_answer(answer, caller.body_size, headers)

    return endpoint
