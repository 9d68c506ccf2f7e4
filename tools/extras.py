"""Which extra of this project installs a missing package: takes an import's error, returns a sentence."""

from __future__ import annotations

DISTRIBUTION = "gpt-oss-server"
# By the name that an import uses.
EXTRAS = {
    "charset_normalizer": "browser",
    "httpx": "browser",
    "pypdf": "browser",
    "selectolax": "browser",
    "exa_py": "exa",
    "ipykernel": "python",
    "jupyter_client": "python",
    "traitlets": "python",
    "zmq": "python",
    "httpx2": "mcp",
    "mcp": "mcp",
    "mcp_types": "mcp",
    "opentelemetry.exporter": "otel",  # fastapi brings the API alone
    "opentelemetry.sdk": "otel",
    "triton": "gpu",
}


def how_to_install(error: ImportError) -> str:
    """A sentence that names the missing package, and the extra that it belongs to."""
    name = f"{error.name}."
    package = next((known for known in EXTRAS if name.startswith(f"{known}.")), None)
    if package is None:
        return f"{error}. Install this server's packages again: pip install --upgrade '{DISTRIBUTION}[all]'."
    extra = f"{DISTRIBUTION}[{EXTRAS[package]}]"
    return f"The package {package} is missing. Install its extra: pip install '{extra}'."
