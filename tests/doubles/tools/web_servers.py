"""Real HTTP servers on 127.0.0.1 for the browser's tests, and small documents to serve."""

import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Seen:
    method: str
    path: str
    headers: dict[str, str]
    body: bytes


@dataclass(frozen=True)
class Answer:
    body: bytes | str = b""
    status: int = 200
    content_type: str | None = "text/html; charset=utf-8"
    headers: dict[str, str] = field(default_factory=dict)


Handler = Callable[[Seen], Answer]


def as_json(value: object, status: int = 200) -> Answer:
    return Answer(json.dumps(value), status, "application/json; charset=utf-8")


async def loopback(host: str, port: int) -> list[str]:
    """A resolver to which every name is this machine."""
    return ["127.0.0.1"]


@dataclass(frozen=True)
class Server:
    port: int
    seen: list[Seen]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"


@contextmanager
def serve(handler: Handler, *, tls: ssl.SSLContext | None = None) -> Iterator[Server]:
    seen: list[Seen] = []

    class Requests(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            length = int(self.headers.get("content-length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Seen(self.command, self.path, headers, self.rfile.read(length))
            seen.append(request)
            answer = handler(request)
            body = answer.body.encode() if isinstance(answer.body, str) else answer.body
            self.send_response(answer.status)
            if answer.content_type is not None:
                self.send_header("Content-Type", answer.content_type)
            self.send_header("Content-Length", str(len(body)))
            for name, value in answer.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Logs nothing, because the tests look at `seen`."""

    class Listener(ThreadingHTTPServer):
        daemon_threads = False

        def handle_error(self, request: object, client_address: object) -> None:
            """Ignores clients that hang up early, which are part of the tests."""

    listener = Listener(("127.0.0.1", 0), Requests)
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield Server(listener.server_address[1], seen)
    finally:
        listener.shutdown()
        thread.join()
        listener.server_close()


def pdf(*pages: str, title: str = "A paper") -> bytes:
    kids = " ".join(f"{5 + 2 * number} 0 R" for number in range(len(pages)))
    objects = [
        "<< /Type /Catalog /Pages 2 0 R >>",
        f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>",
        "<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
        f"<< /Title ({title}) >>",
    ]
    for number, text in enumerate(pages):
        stream = f"BT /F1 12 Tf 72 720 Td ({text}) Tj ET"
        objects.append(
            f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents {6 + 2 * number} 0 R "
            "/Resources << /Font << /F1 3 0 R >> >> >>"
        )
        objects.append(f"<< /Length {len(stream)} >>\nstream\n{stream}\nendstream")
    out = "%PDF-1.4\n"
    offsets = []
    for number, body in enumerate(objects, 1):
        offsets.append(len(out))
        out += f"{number} 0 obj\n{body}\nendobj\n"
    table = "".join(f"{offset:010} 00000 n \n" for offset in offsets)
    size = len(objects) + 1
    out += f"xref\n0 {size}\n0000000000 65535 f \n{table}"
    out += f"trailer << /Size {size} /Root 1 0 R /Info 4 0 R >>\nstartxref\n{out.index('xref')}\n%%EOF\n"
    return out.encode("latin-1")
