"""Which extra of this project installs a missing package: takes an import's error, returns a sentence."""

DISTRIBUTION = "gpt-oss-server"
_PACKAGES = {
    "browser": ("charset_normalizer", "httpx", "pypdf", "selectolax"),
    "exa": ("exa_py",),
    "python": ("ipykernel", "jupyter_client", "traitlets", "zmq"),
    "mcp": ("httpx2", "mcp", "mcp_types"),
    "otel": ("opentelemetry.exporter", "opentelemetry.sdk"),  # fastapi brings the API alone
    "gpu": ("triton",),
}
# By the name that an import uses.
EXTRAS = {package: extra for extra, packages in _PACKAGES.items() for package in packages}


def how_to_install(error: ImportError) -> str:
    """A sentence that names the missing package, and the extra that it belongs to."""
    name = f"{error.name}."
    package = next((known for known in EXTRAS if name.startswith(f"{known}.")), None)
    if package is None:
        return f"{error}. Install this server's packages again: pip install --upgrade '{DISTRIBUTION}[all]'."
    extra = f"{DISTRIBUTION}[{EXTRAS[package]}]"
    return f"The package {package} is missing. Install its extra: pip install '{extra}'."
