"""The tools of the terminal chat: which are enabled, whether they are available, and their declarations."""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from gpt_oss_server.toolset.offered import ToolsetMaker

SETTINGS = ("browser", "python", "python_image", "python_timeout", "tool_server", "allow_private_hosts")
_SEARCH = "let the model search, with the backend of --browser"
_RUN = "let the model run Python, in the sandbox of --python"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("-b", "--browser-tool", action="store_true", help=_SEARCH)
    parser.add_argument("-p", "--python-tool", action="store_true", help=_RUN)


def declared(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    tools: list[dict[str, Any]] = []
    if args.browser_tool:
        tools.append({"type": "web_search"})
    if args.python_tool:
        tools.append({"type": "code_interpreter", "container": {"type": "auto"}})
    return tools


def toolset_maker(args: argparse.Namespace, settings: Settings) -> ToolsetMaker | None:
    """The maker of the enabled tools; None if no hosted tool is enabled. Raises SettingsError."""
    if not (args.browser_tool or args.python_tool):
        return None
    from gpt_oss_server.toolset.offered import ToolsetMaker

    browser = settings.browser if args.browser_tool else "off"
    python = settings.python if args.python_tool else "off"
    return ToolsetMaker(replace(settings, browser=browser, python=python, mcp=()))  # requests name no servers


async def check(maker: ToolsetMaker, args: argparse.Namespace) -> None:
    refusals = (await maker.ready()).refusals
    enabled_tools = (("-b", args.browser_tool, "browser"), ("-p", args.python_tool, "python"))
    for flag, enabled, namespace in enabled_tools:
        if enabled and namespace in refusals:
            raise CommandLineError(f"{flag} is not available: {refusals[namespace]}")
