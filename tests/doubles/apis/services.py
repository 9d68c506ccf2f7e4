"""Services of the Responses API, each with its own engine and settings."""

from pathlib import Path
from typing import Any

from gpt_oss_server.apis.conversations.conversations import Conversations
from gpt_oss_server.apis.responses.service import ResponsesService
from gpt_oss_server.caller.caller import LOCAL
from gpt_oss_server.runs.served import Served
from gpt_oss_server.settings import Settings
from gpt_oss_server.toolset.offered import ToolsetMaker
from inference.engine import Engine


def responses_service(engine: Engine, settings: Settings | None = None, **options: Any) -> ResponsesService:
    return ResponsesService(Served(engine, settings, **options))


def browsing_service(folder: Path, engine: Engine, **options: Any) -> ResponsesService:
    """A service whose browser searches this folder, in which a page about a fjord is written."""
    (folder / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n\nIt is cold.\n")
    settings = Settings(browser=f"local:{folder}", python="off")
    return responses_service(engine, settings, tools=ToolsetMaker(settings), **options)


def conversations_of(service: ResponsesService) -> Conversations:
    return Conversations(service.served.work(LOCAL))
