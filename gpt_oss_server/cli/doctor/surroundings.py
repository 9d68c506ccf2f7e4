"""Checks of what a server uses: sandboxes, the browser, MCP servers, the store, the network, TLS."""

from __future__ import annotations

import asyncio
import json
import os
import urllib.error
import urllib.request

from gpt_oss_server.cli.doctor.finding import Check, Finding, missing, ok
from gpt_oss_server.http.connections.tls import tls_of
from gpt_oss_server.ids import random_ids
from gpt_oss_server.items.web_search import browser_backend
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.shown import without_secrets
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.kinds.places import kept_where
from gpt_oss_server.stores.kinds.table import stores_of
from inference.registry import repo_of
from tools.extras import how_to_install
from tools.tool import Tool, ToolCall, ToolOutput, ToolUnavailable

_CELL, _RESULT = "print(6 * 7)", "42"
_QUERY = "gpt-oss"
_HUB = "https://huggingface.co"
_HUB_SECONDS = 10.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def sandbox(level: str) -> Check:
    """Runs a cell of python in a sandbox of this level."""
    name = f"python in {level}"

    async def check(settings: Settings) -> Finding:
        needed = settings.python == level
        try:
            from tools.python import PythonTool, choose_sandbox

            box = await choose_sandbox(level, image=settings.python_image)
            assert box is not None
            tool = PythonTool(box, timeout=settings.python_timeout)
            output = (await _called(tool, ToolCall("", _CELL))).text
        except ImportError as error:
            return missing(name, "The python tool is not installed.", how_to_install(error), needed=needed)
        except ToolUnavailable as error:
            advice = "Or start with --python off." if needed else "Another level does as well; `auto` picks."
            return missing(name, str(error), advice, needed=needed)
        if _RESULT not in output:
            return missing(name, f"A cell printed {output[:200]!r} instead of 42.", "", needed=True)
        return ok(name, "A cell of python ran in a sandbox of its own.")

    return check


async def browser(settings: Settings) -> Finding:
    """Searches, as the model would."""
    try:
        backend = browser_backend(settings)
        if backend is None:
            advice = "--browser local:DIR, --browser searxng:URL, or --browser exa with EXA_API_KEY."
            return missing("browser", "The browser tool is off.", advice, needed=False)
        from tools.browser import BrowserTool

        tool = BrowserTool(backend, allow_private_hosts=settings.allow_private_hosts, timeout=30.0)
    except ImportError as error:
        return missing("browser", "The browser tool is not installed.", how_to_install(error), needed=True)
    except (ToolUnavailable, ValueError) as error:
        return missing("browser", str(error), "", needed=True)
    output = await _called(tool, ToolCall("search", json.dumps({"query": _QUERY})))
    if output.failed:
        return missing("browser", f"A search failed: {output.text[:300]}", "", needed=True)
    return ok("browser", "A search was answered.")


async def mcp(settings: Settings) -> Finding:
    """Lists the tools of each server of `--mcp`."""
    from tools.mcp.client import McpTool
    from tools.mcp.endpoints import McpSettingsError
    from tools.mcp.failures import McpFailure
    from tools.mcp.operator import parse_mcp_flags

    answered: list[str] = []
    try:
        servers = parse_mcp_flags(settings.mcp)
    except McpSettingsError as error:
        return missing("mcp", f"--mcp: {error}", "", needed=True)
    for server in servers:
        tool = McpTool(server.label, server.endpoint, server.credentials, timeout=30.0)
        try:
            answered.append(f"{server.label} ({len((await tool.list()).tools)} tools)")
        except McpFailure as error:
            advice = "Start it, or correct --mcp; requests that need it will try again."
            return missing("mcp", f"--mcp {server.label}: {error}", advice, needed=True)
        finally:
            await tool.close()
    return ok("mcp", f"MCP servers that answered: {', '.join(answered)}.")


async def store(settings: Settings) -> Finding:
    """Stores a response, reads it and deletes it."""
    shown = without_secrets(settings.store)
    try:
        stores = await asyncio.to_thread(stores_of, settings)
    except SettingsError as error:
        return missing("store", str(error), "", needed=True)
    response_id = random_ids("resp")
    try:
        await stores.responses.put(StoredResponse({"id": response_id, "output": []}))
        found = await stores.responses.get(response_id)
        await stores.responses.delete(response_id)
    except Exception as error:  # whatever a database raises is the finding
        return missing("store", f"--store {shown}: {error}", "Correct --store.", needed=True)
    finally:
        await stores.close()
    if found is None:
        return missing("store", f"--store {shown} does not return what it stored.", "", needed=True)
    return ok("store", f"A response was stored, read and deleted. Store: {kept_where(settings.store)}.")


async def network(settings: Settings) -> Finding:
    """Reaches the hub from which models are downloaded."""
    used = next(
        (f"{name}={without_secrets(os.environ[name])}" for name in _PROXIES if os.environ.get(name)), ""
    )
    through = f" through the proxy {used}" if used else ""
    try:
        await asyncio.to_thread(_reach_hub)
    except (OSError, ValueError) as error:
        inner = getattr(error, "reason", error)
        reason = getattr(inner, "strerror", None) or inner
        return missing(
            "network",
            f"{_HUB} cannot be reached{through}: {reason}.",
            "Models cannot be downloaded: set HTTPS_PROXY, or name a folder that holds the checkpoint. A "
            "server without a network needs nothing else.",
            needed=repo_of(settings.model) is not None and not os.environ.get("HF_HUB_OFFLINE"),
        )
    return ok("network", f"{_HUB} answers{through}.")


def _reach_hub() -> None:
    request = urllib.request.Request(_HUB, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_HUB_SECONDS):
            pass
    except urllib.error.HTTPError:
        return  # it answers


async def tls(settings: Settings) -> Finding:
    try:
        found = tls_of(settings)
    except SettingsError as error:
        return missing("tls", str(error), "", needed=True)
    if found is None:
        advice = "With --tls-cert and --tls-key, or a proxy in front, it speaks HTTPS."
        return missing("tls", "The server would speak plain HTTP.", advice, needed=False)
    return ok("tls", f"The certificate in {found.certificate} belongs to its key and is valid.")


async def _called(tool: Tool, call: ToolCall) -> ToolOutput:
    session = tool.open()
    try:
        return await session.run(call)
    finally:
        await session.close()
        await tool.close()
