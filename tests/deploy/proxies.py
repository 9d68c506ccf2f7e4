"""Real reverse proxies with the configuration files that the project ships, on ports of their own.

`nginx` and `caddy` take the ports of two servers. Only addresses and certificates of the files are replaced.
"""

import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doubles.ops.certificates import write_certificate
from tests.doubles.server_process import free_port

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
NAME = "llm.example"  # the name in the shipped files
_START_SECONDS = 30


@dataclass(frozen=True)
class Proxy:
    port: int
    certificate: Path

    @property
    def url(self) -> str:
        return f"https://localhost:{self.port}/v1"


def _certificate(folder: Path) -> tuple[Path, Path]:
    """For localhost and the shipped name, and its key."""
    certificate, key = write_certificate(folder, "proxy", hosts=("localhost", NAME))
    return Path(certificate), Path(key)


def _with_ports(text: str, ports: Sequence[int]) -> str:
    for shipped, port in zip((8001, 8002), ports, strict=True):
        text = text.replace(f"127.0.0.1:{shipped}", f"127.0.0.1:{port}")
    return text


@contextmanager
def _running(command: Sequence[str], port: int, log: Path) -> Iterator[None]:
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:
        _await(process, port, log)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        assert process.poll() is None, log.read_text(encoding="utf-8", errors="replace")
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError(f"The proxy did not listen within {_START_SECONDS} s.")


def _program(name: str) -> str:
    found = shutil.which(name) or shutil.which(name, path="/usr/sbin")
    if found is None:
        pytest.skip(f"{name} is not installed (Debian: apt install {name})")
    return found


@contextmanager
def nginx(folder: Path, ports: Sequence[int]) -> Iterator[Proxy]:
    program, (certificate, key) = _program("nginx"), _certificate(folder)
    secure, plain = free_port(), free_port()
    site = _with_ports((DEPLOY / "nginx" / "gpt-oss-server.conf").read_text(encoding="utf-8"), ports)
    site = re.sub(r" *listen \[::\].*\n", "", site)  # not every machine has IPv6
    for given, wanted in (
        ("listen 443 ", f"listen 127.0.0.1:{secure} "),
        ("listen 80;", f"listen 127.0.0.1:{plain};"),
        (f"/etc/nginx/tls/{NAME}.crt", str(certificate)),
        (f"/etc/nginx/tls/{NAME}.key", str(key)),
    ):
        assert given in site, f"the shipped file has no {given!r}"
        site = site.replace(given, wanted)
    (folder / "site.conf").write_text(site, encoding="utf-8")
    names = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    places = "".join(f"{name}_temp_path {folder}/{name};" for name in names)
    main = folder / "nginx.conf"
    main.write_text(
        f"daemon off; master_process off; pid {folder}/nginx.pid; error_log {folder}/nginx.log info;"
        "events { worker_connections 512; }"
        f"http {{ access_log off; {places} include {folder}/site.conf; }}",
        encoding="utf-8",
    )
    command = [program, "-c", str(main), "-e", str(folder / "nginx.log")]
    with _running(command, secure, folder / "nginx.out"):
        yield Proxy(secure, certificate)


@contextmanager
def caddy(folder: Path, ports: Sequence[int]) -> Iterator[Proxy]:
    program, (certificate, key) = _program("caddy"), _certificate(folder)
    port = free_port()
    site = _with_ports((DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8"), ports)
    assert f"{NAME} {{" in site
    addresses = f"https://localhost:{port}, https://{NAME}:{port} {{\n\ttls {certificate} {key}\n"
    site = "{\n\tadmin off\n\tauto_https disable_redirects\n}\n" + site.replace(f"{NAME} {{\n", addresses)
    (folder / "Caddyfile").write_text(site, encoding="utf-8")
    command = [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]
    with _running(command, port, folder / "caddy.out"):
        yield Proxy(port, certificate)
