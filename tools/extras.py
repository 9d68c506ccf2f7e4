"""How to install what is missing here: takes the error of an import or an extra, and returns a command.

It is a checkout, which has the extras; a wheel, from wherever it came; or an image, which its users extend.
"""

import shlex
import sys
from collections.abc import Iterable
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

DISTRIBUTION = "gpt-oss-server"
_ROOT = Path(__file__).resolve().parents[1]
_IMAGE = Path("/opt/gpt-oss-server/server")  # deploy/docker/Dockerfile
_PACKAGES = {
    "browser": ("charset_normalizer", "httpx", "pypdf", "selectolax"),
    "files": ("docx", "openpyxl", "pptx"),
    "exa": ("exa_py",),
    "python": ("ipykernel", "jupyter_client", "traitlets", "zmq"),
    "mcp": ("httpx2", "mcp", "mcp_types"),
    "otel": ("opentelemetry.exporter", "opentelemetry.sdk"),  # fastapi brings the API alone
    "postgres": ("psycopg",),
    "s3": ("obstore",),
    "gguf": ("gguf",),
    "gpu": ("triton",),
}
# By the name that an import uses.
EXTRAS = {package: extra for extra, packages in _PACKAGES.items() for package in packages}


def how_to_install(error: ImportError) -> str:
    """A sentence that names the missing package, and the command."""
    name = f"{error.name}."
    package = next((known for known in EXTRAS if name.startswith(f"{known}.")), None)
    if package is None:
        return f"{error}. {install_again(name.partition('.')[0])}"
    return f"The package {package} is missing. Install it: {install_extra(EXTRAS[package])}"


def install_again(package: str) -> str:
    """The command for a package that this project requires. `package`: as an import names it."""
    owner = metadata.packages_distributions().get(package, [package])[0]
    return f"Install that package again: {sys.executable} -m pip install --upgrade {owner}"


def install_extra(extra: str) -> str:
    """The command that installs an extra of this project."""
    if (_ROOT / "pyproject.toml").is_file():
        return f"{sys.executable} -m pip install -e {shlex.quote(f'{_ROOT}[{extra}]')}"
    stated = [line.partition(";") for line in metadata.requires(DISTRIBUTION) or ()]
    names = [name.strip() for name, _, marker in stated if f'extra == "{extra}"' in marker.replace("'", '"')]
    command = shlex.join(["pip", "install", *(name for name in names if not name.startswith(DISTRIBUTION))])
    if _ROOT == _IMAGE:
        return f"in an image FROM this one, as `USER root`, `RUN {command}`, `USER 10001:10001`"
    return f"{sys.executable} -m {command}"


def missing_package(extras: Iterable[str]) -> ImportError | None:
    """The first package of these extras that Python does not find, without importing any."""
    for package in (package for extra in extras for package in _PACKAGES[extra]):
        try:
            spec = find_spec(package)
        except ModuleNotFoundError:  # not even the package around it
            spec = None
        if spec is None:
            return ModuleNotFoundError(f"No module named {package!r}", name=package)
    return None
