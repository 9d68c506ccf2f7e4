"""Checks of what a server uses: sandboxes, browser, MCP servers, store, network, keys, TLS, port."""

import asyncio
import json
import os
import stat
import urllib.error
import urllib.request
from dataclasses import replace

from gpt_oss_server.cli.doctor.finding import Check, Finding, missing, ok
from gpt_oss_server.cli.server.http_server import connection_limits, listen
from gpt_oss_server.cli.server.tools import count_tools, hosted_tool
from gpt_oss_server.embeddings import EndpointFailed, probed
from gpt_oss_server.http.connections.tls import tls_of
from gpt_oss_server.ids import random_ids
from gpt_oss_server.runs.served import keyring_of
from gpt_oss_server.settings import Settings, SettingsError
from gpt_oss_server.settings.shown import without_secrets
from gpt_oss_server.settings.sources import file_of
from gpt_oss_server.stores.base import StoredResponse
from gpt_oss_server.stores.kinds.places import kept_where
from gpt_oss_server.stores.kinds.table import open_stores
from gpt_oss_server.toolset.outside import known_kinds
from inference.backends.checkpoints import hub_repo
from tools.addresses import is_of_this_machine
from tools.extras import how_to_install
from tools.tool import Tool, ToolCall, ToolOutput, ToolUnavailable

_CELL, _RESULT = "print(6 * 7)", "42"
_QUERY = "gpt-oss"
_HUB = "https://huggingface.co"
_HUB_SECONDS, _MCP_SECONDS = 10.0, 30.0
_PROXIES = ("https_proxy", "HTTPS_PROXY", "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY")


def sandbox(level: str) -> Check:
    """Runs a cell of python in a sandbox of this level."""

    async def check(settings: Settings) -> Finding:
        needed = settings.python == level
        try:
            tool = await hosted_tool("python", replace(settings, python=level))
            assert tool is not None
            output = (await _called(tool, ToolCall("", _CELL))).text
        except ImportError as error:
            return missing("The python tool is not installed.", how_to_install(error), needed=needed)
        except ToolUnavailable as error:
            advice = "Or start with --python off." if needed else "Another level does as well; `auto` picks."
            return missing(str(error), advice, needed=needed)
        if _RESULT not in output:
            return missing(f"A cell printed {output[:200]!r} instead of 42.", needed=True)
        return ok("A cell of python ran in a sandbox of its own.")

    return check


async def browser(settings: Settings) -> Finding:
    """Searches, as the model would."""
    try:
        tool = await hosted_tool("browser", settings)
    except ImportError as error:
        return missing("The browser tool is not installed.", how_to_install(error), needed=True)
    except (ToolUnavailable, ValueError) as error:
        return missing(str(error), needed=True)
    if tool is None:
        advice = "--browser local:DIR, --browser searxng:URL, or --browser exa with EXA_API_KEY."
        return missing("The browser tool is off.", advice, needed=False)
    output = await _called(tool, ToolCall("search", json.dumps({"query": _QUERY})))
    if output.failed:
        return missing(f"A search failed: {output.text[:300]}", needed=True)
    return ok("A search was answered.")


async def _called(tool: Tool, call: ToolCall) -> ToolOutput:
    session = tool.open()
    try:
        return await session.run(call)
    finally:
        await session.close()
        await tool.close()


async def mcp(settings: Settings) -> Finding:
    """Lists the tools of each server of `--mcp`."""
    from tools.mcp.endpoints import McpSettingsError
    from tools.mcp.failures import McpFailure
    from tools.mcp.operator import parse_mcp_flags

    try:
        servers = parse_mcp_flags(settings.mcp)
    except McpSettingsError as error:
        return missing(f"--mcp: {error}", needed=True)
    answered: list[str] = []
    for server in servers:
        try:
            answered.append(f"{server.label} ({await count_tools(server, _MCP_SECONDS)} tools)")
        except McpFailure as error:
            advice = "Start it, or correct --mcp; requests that need it will try again."
            return missing(f"--mcp {server.label}: {error}", advice, needed=True)
    return ok(f"MCP servers that answered: {', '.join(answered)}.")


async def embeddings(settings: Settings) -> Finding:
    """Asks for the vector of a text, and for the order of two."""
    try:
        return ok(f"{'; '.join(await probed(settings))}.")
    except (EndpointFailed, SettingsError) as error:
        return missing(str(error), "Start that server, or correct the flag.", needed=True)


async def store(settings: Settings) -> Finding:
    """Stores a response, reads it and deletes it."""
    shown = without_secrets(settings.store)
    stores = await asyncio.to_thread(open_stores, settings)
    response_id = random_ids("resp")
    try:
        await stores.responses.put(StoredResponse({"id": response_id, "output": []}))
        stored = await stores.responses.get(response_id)
        await stores.responses.delete(response_id)
    except Exception as error:  # whatever a database raises is the finding
        return missing(f"--store {shown}: {error}", "Correct --store.", needed=True)
    finally:
        await stores.close()
    if stored is None:
        return missing(f"--store {shown} does not return what it stored.", needed=True)
    return ok(f"A response was stored, read and deleted. Store: {kept_where(settings.store)}.")


async def network(settings: Settings) -> Finding:
    """Reaches the hub from which models are downloaded."""
    proxy = next(filter(os.environ.get, _PROXIES), None)
    through = f" through the proxy {proxy}={without_secrets(os.environ[proxy])}" if proxy else ""
    try:
        await asyncio.to_thread(_reach_hub)
    except (OSError, ValueError) as error:
        inner = getattr(error, "reason", error)
        reason = getattr(inner, "strerror", None) or inner
        needed = hub_repo(settings.model) is not None and not os.environ.get("HF_HUB_OFFLINE")
        advice = "Models cannot be downloaded: set HTTPS_PROXY, or name a folder that holds the checkpoint."
        advice += " A server without a network needs nothing else."
        return missing(f"{_HUB} cannot be reached{through}: {reason}.", advice, needed=needed)
    return ok(f"{_HUB} answers{through}.")


def _reach_hub() -> None:
    request = urllib.request.Request(_HUB, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=_HUB_SECONDS):
            pass
    except urllib.error.HTTPError:
        return  # it answers


async def keys(settings: Settings) -> Finding:
    """Are there keys where other machines can reach the server, and who else can read them?"""
    if not settings.needs_keys:
        if is_of_this_machine(settings.host):
            return ok("No key is needed, and only this machine can reach the server.")
        problem = f"The server needs no key, and --host {settings.host} lets other machines reach it."
        advice = "--api-key-file FILE, or keys in the variable GPT_OSS_SERVER_API_KEY."
        return missing(problem, advice, needed=False)
    owners = keyring_of(settings, known_kinds()).owners
    sentence = f"{_count(len(owners), 'key')} of {_count(len(set(owners)), 'owner')}."
    file = settings.api_key_file
    if file is not None and file_of(file, "--api-key-file").stat().st_mode & stat.S_IROTH:
        problem = f"{sentence} Every user of this machine can read {file}."
        return missing(problem, f"chmod 600 {file}", needed=False)
    return ok(sentence)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


async def tls(settings: Settings) -> Finding:
    certificate = tls_of(settings)
    if certificate is None:
        advice = "With --tls-cert and --tls-key, or a proxy in front, it speaks HTTPS."
        return missing("The server would speak plain HTTP.", advice, needed=False)
    return ok(f"The certificate in {certificate.certificate} belongs to its key and is valid.")


async def port(settings: Settings) -> Finding:
    """Listens, for a moment."""
    with listen(settings.host, settings.port) as listener:
        listener.listen()
        host, number = listener.getsockname()[:2]
    count, wanted = connection_limits(settings).count, settings.max_connections
    sentence = f"The server can listen on {host}, port {number}, for {count} connections."
    if count < wanted:
        advice = f"For {wanted} (--max-connections), raise the limit of open files (ulimit -n)."
        return missing(sentence, advice, needed=False)
    return ok(sentence)
