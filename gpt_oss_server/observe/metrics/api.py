"""GET /metrics: what Prometheus reads."""

from __future__ import annotations

from fastapi import APIRouter, Request
from starlette.responses import Response

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.observe.metrics.metrics import Metrics


def metrics_router(metrics: Metrics, service: ResponsesService) -> APIRouter:
    router = APIRouter()
    served = service.served

    @router.get("/metrics")
    async def read(request: Request) -> Response:
        accept = request.headers.get("accept", "")
        text, media_type = await metrics.text(served, lambda: service.background.count, accept)
        return Response(text, media_type=media_type, headers={"cache-control": "no-store"})

    return router
