"""Services of the Responses API, each with its own engine and settings."""

from __future__ import annotations

from typing import Any

from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from inference.engine import Engine


def responses_service(engine: Engine, settings: Settings | None = None, **options: Any) -> ResponsesService:
    return ResponsesService(Served(engine, settings, **options))
