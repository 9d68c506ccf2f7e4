"""A client for the examples, and a scripted model where the embedded one is too small for an example.

Of a scripted model only the words are prepared. The search, the sandbox, the MCP server and the citations are
real, and the same request works with a larger model.
"""

import atexit
import os
import re
import subprocess
import sys
from pathlib import Path

from openai import APIConnectionError, OpenAI

FOLDER = Path(__file__).parent
TOOLS = ("--browser", f"local:{FOLDER / 'documents'}")
TOOLS += ("--mcp", f"units={sys.executable} {FOLDER / 'mcp_server.py'}")
SCRIPTED = ("--model", f"scripted:{FOLDER / 'script.json'}", *TOOLS)


def client(needed: str = "") -> OpenAI:
    """A client of the running server. `needed`: what the example needs that the embedded model cannot do."""
    url = os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:8000/v1")
    running = OpenAI(base_url=url, api_key="unused")
    try:
        model = running.models.list().data[0].id
    except APIConnectionError:
        sys.exit(f"No server answers at {url}. Start one in another terminal: make serve")
    if needed and model == "tiny":
        print(f"The embedded model is too small {needed}.")
        print("A scripted model takes its place: its words are prepared, everything else is real.\n")
        address = os.environ.get("TOUR_BASE_URL") or serve(*SCRIPTED)
        return OpenAI(base_url=address, api_key="unused")
    return running


def serve(*flags: str) -> str:
    """Starts a server for as long as this program runs; returns its base URL."""
    quiet = ("--log-level", "warning", "--drain-delay", "0")
    words = [sys.executable, "-m", "gpt_oss_server", "serve", "--port", "0", *quiet, *flags]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    atexit.register(stop, server)
    for line in server.stdout:
        if found := re.search(r"API +(http://\S+/v1)", line):
            return found[1]
    sys.exit("The server did not start.")


def stop(server: subprocess.Popen[str]) -> None:
    server.terminate()
    server.wait()
