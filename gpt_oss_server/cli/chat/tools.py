"""The tools of the terminal chat: which are enabled, whether they are available, how requests declare them.

Takes the chat's flags and settings. Returns a `ToolsetMaker` and the `tools` of each request, or raises an
error about what is missing before a model is loaded in vain.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gpt_oss_server.cli.chat.patches import DECLARATION
from gpt_oss_server.cli.terminal.console import CommandLineError
from gpt_oss_server.settings import Settings

if TYPE_CHECKING:
    from gpt_oss_server.toolset.offered import ToolsetMaker

SETTINGS = ("browser", "python", "python_image", "python_timeout", "tool_server", "allow_private_hosts")
_SWITCHES = (
    ("-b", "--browser-tool", "browser_tool", "let the model search, with the backend of --browser"),
    ("-p", "--python-tool", "python_tool", "let the model run Python, in the sandbox of --python"),
    (
        "-a",
        "--apply-patch",
        "patches",
        "let the model change files under the current folder; you see each patch and confirm it",
    ),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    for short, name, dest, help in _SWITCHES:
        parser.add_argument(short, name, dest=dest, action="store_true", help=help)
    parser.add_argument(
        "-f",
        "--functions",
        metavar="FILE",
        help="functions that the model may call, declared in a JSON file: their commands run, or you "
        "enter the result",
    )


def declared(args: argparse.Namespace) -> list[dict[str, Any]]:
    """The `tools` of a request."""
    tools: list[dict[str, Any]] = []
    if args.browser_tool:
        tools.append({"type": "web_search"})
    if args.python_tool:
        tools.append({"type": "code_interpreter", "container": {"type": "auto"}})
    if args.patches:
        tools.append(DECLARATION)
    return tools


def toolset_maker(args: argparse.Namespace, settings: Settings) -> ToolsetMaker | None:
    """The maker of the enabled tools; None if no hosted tool is enabled. Raises SettingsError."""
    if not (args.browser_tool or args.python_tool):
        return None
    from gpt_oss_server.toolset.offered import ToolsetMaker

    used = replace(
        settings,
        browser=settings.browser if args.browser_tool else "off",
        python=settings.python if args.python_tool else "off",
        mcp=(),  # the chat's requests name no MCP servers
    )
    return ToolsetMaker(used)


async def check(maker: ToolsetMaker, args: argparse.Namespace) -> None:
    refusals = (await maker.ready()).refusals
    for flag, enabled, namespace in (
        ("-b", args.browser_tool, "browser"),
        ("-p", args.python_tool, "python"),
    ):
        if enabled and namespace in refusals:
            raise CommandLineError(f"{flag} is not available: {refusals[namespace]}")
