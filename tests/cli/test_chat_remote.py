"""The chat with a running server."""

import signal
import time
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.cli.chat.remote import base_url
from gpt_oss_server.cli.terminal.console import CommandLineError
from tests.doubles.commands import ANSWER, final, run, script, terminal
from tests.doubles.ops.certificates import write_certificate
from tests.doubles.server_process import serving

SLOW = final("word " * 5000, when="slow")


def test_a_conversation_with_a_server(tmp_path: Path) -> None:
    remembers = final("I remember.", when=r"first[\s\S]*second")
    with serving("--model", script(tmp_path, remembers, ANSWER)) as served:
        talk = run("chat", "--url", served.url, stdin="first\nsecond\n")
        assert (talk.returncode, talk.stdout, talk.stderr) == (0, "| Easy.\nHello!\nI remember.\n", "")
        one = run("chat", "--url", served.api, "--no-reasoning", "first")
        assert (one.returncode, one.stdout) == (0, "Hello!\n")
        wrong = run("chat", "--url", served.url, "-m", "openai/gpt-oss-20b", "first")
        assert wrong.returncode == 1
        assert "The model 'openai/gpt-oss-20b' is not served here. Served: scripted." in wrong.stdout


def test_ctrl_c_stops_the_server_s_answer_and_the_greeting_names_it(tmp_path: Path) -> None:
    model = script(tmp_path, SLOW, ANSWER, tokens_per_second=50)
    with serving("--model", model) as served, terminal("--url", served.url) as screen:
        screen.shows(rf"scripted, replays a script of 2 turn\(s\), at {served.api}\.[\s\S]*> ")
        screen.enter("slow", "word word")
        screen.press("\x03")
        screen.shows(r"\[stopped\]")
        patience = time.monotonic() + 30
        while httpx.get(f"{served.url}/health").json()["counters"]["cancelled"] == 0:
            assert time.monotonic() < patience, "the server goes on generating"
            time.sleep(0.1)
        screen.enter("and now", r"Hello![\s\S]*> ")
        screen.quit()


def test_http_and_https_that_do_not_fit_are_distinguished_from_an_absent_server(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "server", hosts=("127.0.0.1",))
    flags = ("--model", script(tmp_path, ANSWER))
    with serving(*flags, "--tls-cert", certificate, "--tls-key", key) as served:
        address = served.url.rpartition("/")[2]
        unknown = run("chat", "--url", f"https://{address}", "hi")
        assert unknown.stderr.startswith(f"The certificate of https://{address}/v1 cannot be verified: ")
        assert "SSL_CERT_FILE" in unknown.stderr
        trusted = run("chat", "--url", f"https://{address}", "hi", env={"SSL_CERT_FILE": certificate})
        assert (trusted.returncode, trusted.stdout) == (0, "| Easy.\nHello!\n")
        plain = run("chat", "--url", f"http://{address}", "hi")
        assert plain.stderr.endswith(f"If it speaks HTTPS: --url https://{address}/v1.\n")
    with serving(*flags) as served:
        secure = run("chat", "--url", served.url.replace("http:", "https:"), "hi")
        assert secure.stderr.endswith(f"does not speak HTTPS. Try --url {served.url}/v1.\n")
    absent = run("chat", "--url", served.url, "hi")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr.startswith(f"No server answers at {served.api}: ")
    assert "gpt-oss-server serve" in absent.stderr


def test_a_server_that_ends_during_an_answer_is_reported(tmp_path: Path) -> None:
    ended = r"\[(The server ended the connection|The server at \S+ cannot be reached)[\s\S]*> "
    model = script(tmp_path, SLOW, tokens_per_second=50)
    with serving("--model", model) as served, terminal("--url", served.url) as screen:
        screen.shows("> ")
        screen.enter("slow", "word word")
        served.process.send_signal(signal.SIGKILL)
        screen.shows(ended)


def test_an_address_is_taken_as_people_write_it() -> None:
    assert base_url("localhost:8000") == base_url("http://localhost:8000/") == "http://localhost:8000/v1"
    assert base_url("https://host/prefix/v1/") == "https://host/prefix/v1"
    for wrong in ("ftp://host", "http://"):
        with pytest.raises(CommandLineError, match="is no address of a server"):
            base_url(wrong)
