"""What a client sends first, with which all of its conversations begin: it is run against a mere listener."""

import json
import os
import shutil
import subprocess
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from gpt_oss_server.cli.launch.clients import Client, Target
from gpt_oss_server.cli.terminal.console import CommandLineError

_QUESTION = "Hello"
_SECONDS, _PAUSE = 60.0, 0.1  # at most; between two looks at the client
_REFUSAL = json.dumps({"error": {"message": "This address only listens.", "type": "refused"}})


def first_request(client: Client, model: str, context: int) -> dict[str, Any]:
    """`model` and `context`: of the server that the client will use. It runs in the current folder."""
    program = shutil.which(client.name)
    if program is None:
        raise CommandLineError(client.missing)
    found, sent = threading.Event(), list[dict[str, Any]]()

    class Listener(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"] or 0)))
            if body.get("tools"):  # others count tokens, or ask for a title
                sent.append(body)
                found.set()
            self.do_GET()

        def do_GET(self) -> None:
            self.send_response(400)
            self.send_header("content-type", "application/json")
            self.end_headers()
            self.wfile.write(_REFUSAL.encode())

        def log_message(self, format: str, *args: Any) -> None:
            """The terminal is the command's."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Listener) as server, tempfile.TemporaryDirectory() as folder:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        target = Target(f"http://127.0.0.1:{server.server_port}", "any", model, context, Path(folder))
        setup = client.setup(target)
        setup.write_files()
        words = [program, *setup.words, *client.once, _QUESTION]
        silent: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        process = subprocess.Popen(words, env={**os.environ, **setup.variables}, **silent)
        try:
            late = time.monotonic() + _SECONDS
            while not found.wait(_PAUSE) and process.poll() is None and time.monotonic() < late:
                pass
        finally:
            process.kill()
            process.wait()
            server.shutdown()
    if not sent:
        raise CommandLineError(f"`{client.name}` sent no request with tools. Does it run in this folder?")
    return sent[0]
