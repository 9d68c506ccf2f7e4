"""Watches a server from a process of its own: how long `/health` takes, and when events of a stream arrive.

Writes lines: `health WHEN WAIT`, `event WHEN`, `broken WHEN WHY`.
"""

import ssl
import sys
import threading
import time

import httpx

EVERY = 0.05
TIMEOUT = 60.0
_BODY = {"input": "Go on", "stream": True, "store": False}


def _write(*words: object) -> None:
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def _stream(client: httpx.Client) -> None:
    while True:
        try:
            with client.stream("POST", "/v1/responses", json=_BODY) as answer:
                for line in answer.iter_lines():
                    if line.startswith("event: response.output_text.delta"):
                        _write("event", time.monotonic())
        except httpx.HTTPError as error:
            _write("broken", time.monotonic(), type(error).__name__)
            time.sleep(EVERY)


def main(url: str, key: str) -> None:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    headers = {"Authorization": f"Bearer {key}"} if key else {}
    client = httpx.Client(base_url=url, verify=context, timeout=TIMEOUT, headers=headers)
    threading.Thread(target=_stream, args=(client,), daemon=True).start()
    while True:
        with httpx.Client(base_url=url, verify=context, timeout=TIMEOUT) as fresh:
            began = time.monotonic()
            try:
                answered = fresh.get("/health").status_code == 200
            except httpx.HTTPError:
                answered = False
            _write("health", began, time.monotonic() - began if answered else TIMEOUT)
        time.sleep(EVERY)


if __name__ == "__main__":
    main(*sys.argv[1:])
