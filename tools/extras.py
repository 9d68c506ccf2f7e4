"""Which extra of this project installs a missing package.

Takes the error of an import; returns a sentence for the operator. Pure.
"""

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
    "opentelemetry": "otel",
    "triton": "gpu",
}


def how_to_install(error: ImportError) -> str:
    """A sentence that names the missing package, and the extra that it belongs to."""
    package = (error.name or "").partition(".")[0]
    extra = EXTRAS.get(package)
    if extra is None:
        return f"{error}. Install this server's packages again: pip install --upgrade '{DISTRIBUTION}[all]'."
    return f"The package {package} is missing. Install its extra: pip install '{DISTRIBUTION}[{extra}]'."
