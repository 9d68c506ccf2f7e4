"""Where the servers of a remote engine listen."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from inference.engine import ModelNotFound

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int
    tls: bool
    path: str  # before every path of the engine: "" or "/somewhere"

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{'https' if self.tls else 'http'}://{host}:{self.port}{self.path}"


def parse_addresses(urls: str, kind: str) -> tuple[Address, ...]:
    """One address, or several with commas between them. Raises `ModelNotFound`."""
    addresses = tuple(parse_address(url.strip(), kind) for url in urls.split(","))
    if len(set(addresses)) < len(addresses):
        raise ModelNotFound(f"{urls} names one address twice.")
    return addresses


def parse_address(url: str, kind: str) -> Address:
    """Raises `ModelNotFound`. A trailing `/v1`, as clients' base URLs have it, is not part of the address."""
    url = url.removeprefix(f"{kind}:") if "://" in url else url  # the kind may stand before each address
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ModelNotFound(f"{url!r} is no URL: {error}. Write {kind}:http://127.0.0.1:8080") from error
    if parts.scheme not in _PORTS or not host:
        raise ModelNotFound(f"{url!r} is no URL of an engine. Write {kind}:http://127.0.0.1:8080")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ModelNotFound(
            f"{kind}:URL takes a host, a port and a path only. A key belongs into --engine-key."
        )
    path = parts.path.rstrip("/").removesuffix("/v1")
    return Address(host, port or _PORTS[parts.scheme], parts.scheme == "https", path)
