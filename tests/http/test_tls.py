"""HTTPS with a certificate that signs itself: over the SDK, after a renewal, and files that cannot serve."""

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import httpx
import openai
import pytest
from websockets.sync.client import connect

from gpt_oss_server.http.connections.tls import Handshakes, Tls, tls_of
from gpt_oss_server.settings import Settings, SettingsError
from tests.doubles.commands import ANSWER, run, script
from tests.doubles.ops.certificates import DAY, write_certificate
from tests.doubles.server_process import Served, serving
from tests.doubles.waiting import wait_until


@contextmanager
def serving_tls(folder: Path, *flags: str) -> Iterator[tuple[Served, str]]:
    """A server, and the path of its certificate."""
    cert, key = write_certificate(folder)
    given = ("--model", script(folder, ANSWER), "--tls-cert", cert, "--tls-key", key, *flags)
    with serving(*given) as served:
        yield served, cert


def test_the_sdk_and_websockets_speak_https(tmp_path: Path) -> None:
    with serving_tls(tmp_path) as (served, cert):
        assert served.api.startswith("https://127.0.0.1:")
        assert f"curl --cacert {cert} {served.api}/responses" in served.greeting
        trusting = ssl.create_default_context(cafile=cert)
        http = httpx.Client(verify=trusting)
        with openai.OpenAI(base_url=served.api, api_key="x", http_client=http) as client:
            assert client.responses.create(model="scripted", input="Hi").output_text == "Hello!"
            with client.responses.stream(model="scripted", input="Hi") as stream:
                assert stream.get_final_response().output_text == "Hello!"
        with connect(f"wss://{served.api.removeprefix('https://')}/responses", ssl=trusting) as opened:
            opened.send('{"type": "response.create", "input": "Hi"}')
            assert "response.created" in str(opened.recv(timeout=20))
        with pytest.raises(httpx.ConnectError, match="certificate"):
            httpx.get(f"{served.url}/live")
        with pytest.raises(httpx.TransportError):
            httpx.get(f"{served.url}/live".replace("https", "http"))
        if shutil.which("curl"):
            command = ["curl", "-s", "--cacert", cert, f"{served.url}/live"]
            assert subprocess.run(command, capture_output=True, text=True).stdout == '{"status":"alive"}'


def test_an_idle_client_does_not_hold_up_the_end_of_the_server(tmp_path: Path) -> None:
    with serving_tls(tmp_path, "--shutdown-grace", "300") as (served, cert):
        trusting = ssl.create_default_context(cafile=cert)
        with httpx.Client(verify=trusting) as client:
            assert client.get(f"{served.url}/live").status_code == 200  # its connection stays open
            served.process.send_signal(signal.SIGINT)
            assert served.process.wait(25) == 0


def serial(served: Served) -> str:
    port = int(served.url.rpartition(":")[2])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with (
        socket.create_connection(("127.0.0.1", port)) as raw,
        context.wrap_socket(raw, server_hostname="x") as tls,
    ):
        found = tls.getpeercert(binary_form=True)
        assert found is not None
        return found.hex()


def test_a_renewed_certificate_serves_new_connections(tmp_path: Path) -> None:
    with serving_tls(tmp_path) as (served, _):
        first = serial(served)
        write_certificate(tmp_path)
        wait_until(lambda: serial(served) != first, "the new certificate was not read")


def test_broken_files_do_not_replace_a_certificate(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = write_certificate(tmp_path)
    tls, context = Tls(Path(cert), Path(key)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    write_certificate(tmp_path, "other")
    shutil.copy(tmp_path / "other.key", key)
    os.utime(key, (1, 1))
    tls.read_again_if_changed(context)
    assert "does not belong to the certificate" in caplog.text
    caplog.clear()
    tls.read_again_if_changed(context)  # it is reported once
    assert not caplog.text
    assert tls.name_for("127.0.0.1") == "127.0.0.1"


def test_a_certificate_that_goes_while_it_is_looked_at_does_not_end_the_server(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the look whether it exists and the look at its time."""
    cert, key = write_certificate(tmp_path)
    tls, context = Tls(Path(cert), Path(key)), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    monkeypatch.setattr(Path, "is_file", lambda self: True)
    Path(cert).unlink()
    tls.read_again_if_changed(context)
    assert "server.crt cannot be read: No such file or directory" in caplog.text
    caplog.clear()
    tls.read_again_if_changed(context)  # it is reported once
    assert not caplog.text
    write_certificate(tmp_path)
    caplog.set_level("INFO")
    tls.read_again_if_changed(context)
    assert "The new one is valid until" in caplog.text


def make(folder: Path, kind: str) -> Settings:
    cert, key = write_certificate(folder)
    match kind:
        case "missing" | "name too long" | "unreadable":
            names = {"missing": "gone.crt", "name too long": "x" * 300, "unreadable": "/proc/self/mem"}
            cert = str(folder / names[kind])  # the last one for root too
        case "no certificate":
            (folder / "server.crt").write_text("hello")
        case "no key":
            key = cert
        case "mismatch":
            _, key = write_certificate(folder, "other")
        case "expired":
            cert, key = write_certificate(folder, begins=-9 * DAY, ends=-DAY)
        case "early":
            cert, key = write_certificate(folder, begins=DAY)
        case "password":
            cert, key = write_certificate(folder, password=b"secret")
    return Settings(tls_cert=cert, tls_key=key)


@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("missing", r"There is no file .*gone\.crt"),
        ("name too long", r"The file .*xxx cannot be read: File name too long"),
        ("unreadable", "The file /proc/self/mem cannot be read: Input/output error"),
        ("no certificate", "is not a certificate in PEM"),
        ("no key", "has no private key in PEM"),
        ("mismatch", r"key in .*other\.key does not belong to the certificate in .*server\.crt"),
        ("expired", r"has expired on 20\d\d-\d\d-\d\d"),
        ("early", "is not valid before"),
        ("password", r"has a password.*openssl pkey"),
    ],
)
def test_files_that_cannot_serve_are_reported_in_a_sentence(tmp_path: Path, kind: str, sentence: str) -> None:
    with pytest.raises(SettingsError, match=sentence):
        tls_of(make(tmp_path, kind))


@pytest.mark.parametrize("flag", ["--tls-cert", "--tls-key"])
def test_the_home_of_an_unknown_user_is_a_sentence(tmp_path: Path, flag: str) -> None:
    given = dict(zip(("tls_cert", "tls_key"), write_certificate(tmp_path), strict=True))
    given[flag.removeprefix("--").replace("-", "_")] = "~nobody-here/x"
    with pytest.raises(SettingsError, match=rf"^{flag}: ~nobody-here/x names no file"):
        tls_of(Settings(tls_cert=given["tls_cert"], tls_key=given["tls_key"]))


def test_a_key_needs_its_certificate_and_may_be_in_its_file(tmp_path: Path) -> None:
    cert, key = write_certificate(tmp_path)
    with pytest.raises(SettingsError, match="--tls-key needs --tls-cert"):
        tls_of(Settings(tls_key=key))
    with pytest.raises(SettingsError, match="give the key with --tls-key"):
        tls_of(Settings(tls_cert=cert))
    both = tmp_path / "both.pem"
    both.write_text(Path(cert).read_text() + Path(key).read_text())
    assert tls_of(Settings(tls_cert=str(both))) is not None
    assert tls_of(Settings()) is None


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    cert, key = write_certificate(tmp_path, ends=timedelta(days=3), hosts=("chat.example", "10.0.0.1"))
    tls = tls_of(Settings(tls_cert=cert, tls_key=key))
    assert "expires on" in caplog.text
    assert tls is not None
    assert (tls.name_for("10.0.0.1"), tls.name_for("127.0.0.1")) == ("10.0.0.1", "chat.example")


def test_the_start_fails_before_a_model_is_loaded(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    done = run("serve", "--model", "no/such", "--port", "0", "--tls-cert", str(gone))
    assert (done.returncode, done.stderr) == (1, f"There is no file {gone} (--tls-cert, --tls-key).\n")


@pytest.mark.parametrize(("most", "seconds"), [(2, 1000.0), (4, 2.0)], ids=["counted", "in time"])
async def test_handshakes_that_never_end_are_counted_and_end_in_time(
    tmp_path: Path, most: int, seconds: float
) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    cert, key = write_certificate(tmp_path)
    context.load_cert_chain(cert, key)
    listener = socket.create_server(("127.0.0.1", 0))
    handshakes = Handshakes(context, asyncio.Protocol, most=most, seconds=seconds)
    handshakes.start(listener, 100)
    address = listener.getsockname()
    silent = [await asyncio.open_connection(*address) for _ in range(3)]
    async with asyncio.timeout(60):
        assert await silent[0][0].read() == b"", "a third handshake ends the first, or it took too long"
    trusting = ssl.create_default_context(cafile=cert)
    _, whole = await asyncio.open_connection(*address, ssl=trusting)
    for writer in (whole, *(writer for _, writer in silent)):
        writer.close()
    handshakes.stop()
    listener.close()
