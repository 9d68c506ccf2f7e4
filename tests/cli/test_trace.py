"""`gpt-oss-server trace`: saves a response's trace, and shows one in the terminal."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.cli.main import main
from gpt_oss_server.cli.terminal.trace_view import trace_lines
from tests.doubles.serving import scripted, serving

NEXT = "<|end|><|start|>assistant"
SLIPS = f"<|channel|>opinion<|message|>One\x1b[2J.{NEXT}<|channel|>final<|message|>Two.<|return|>"


@pytest.fixture
def saved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    path = tmp_path / "trace.json"
    with serving(scripted(SLIPS)) as url:
        response = httpx.post(f"{url}/responses", json={"input": "Hi"}).json()
        assert main(["trace", response["id"], "--url", url, "-o", str(path)]) == 0
        assert str(path) in capsys.readouterr().err
        assert main(["trace", response["id"], "--url", url]) == 0
        printed = json.loads(capsys.readouterr().out)
    assert printed == json.loads(path.read_text())
    return path


def test_a_saved_trace_is_shown_token_by_token(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "show", str(saved)]) == 0
    shown = capsys.readouterr().out
    assert "  200005  <|channel|>" in shown
    assert "unknown_channel: the channel 'opinion' is not known" in shown
    assert "StreamableParser reads otherwise" in shown
    assert "\x1b" not in shown  # no colour, and no control character of the trace

    lines = trace_lines(json.loads(saved.read_text()), colour=True, tokens=True)
    assert any("\x1b[36m<|channel|>\x1b[0m" in line for line in lines)
    assert main(["trace", "show", str(saved), "--text"]) == 0
    shown = capsys.readouterr().out
    assert "<|channel|>opinion<|message|>One" in shown
    assert "  200005  " not in shown


def test_an_unknown_response_has_no_trace(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(scripted(SLIPS)) as url:
        assert main(["trace", "resp_unknown", "--url", url]) == 1
    assert "No trace of the response" in capsys.readouterr().err


def test_a_site_that_is_no_api(capsys: pytest.CaptureFixture[str]) -> None:
    class Site(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"<html>")

        def log_message(self, *_: object) -> None:
            return

    with HTTPServer(("127.0.0.1", 0), Site) as site:
        threading.Thread(target=site.handle_request, daemon=True).start()
        assert main(["trace", "resp_1", "--url", f"127.0.0.1:{site.server_port}"]) == 1
    assert "is not JSON. Is --url the base URL of an API?" in capsys.readouterr().err
