"""The browser's backend, by its name in the settings. `ToolUnavailable` names the setting to change."""

import os
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from tools.browser.backends.base import Backend
from tools.extras import how_to_install
from tools.tool import ToolUnavailable

FORMS: Final = "exa, exa:URL, local:DIR, searxng:URL or off"

Environment = Mapping[str, str]


def parse_backend(text: str, environment: Environment = os.environ) -> Backend | None:
    name, _, value = text.strip().partition(":")
    match name:
        case "off" if not value:
            return None
        case "exa":
            return _exa(value, environment)
        case "local":
            return _local(value)
        case "searxng":
            from tools.browser.backends.searxng import SearxngBackend

            return SearxngBackend(_web_address("searxng", value))
        case _:
            raise ToolUnavailable(f"There is no browser backend {text!r}: it must be {FORMS}.")


def default_backend(environment: Environment = os.environ) -> str:
    """The backend when none is set: Exa if there is a key for it, otherwise none."""
    return "exa" if environment.get("EXA_API_KEY") else "off"


def _exa(url: str, environment: Environment) -> Backend:
    key = environment.get("EXA_API_KEY", "").strip()
    if not key:
        raise ToolUnavailable("The browser backend exa needs a key: set EXA_API_KEY.")
    if find_spec("exa_py") is None:
        missing = ModuleNotFoundError(name="exa_py")
        raise ToolUnavailable(f"The browser backend exa: {how_to_install(missing)}")
    from tools.browser.backends.exa import DEFAULT_URL, ExaBackend

    return ExaBackend(key, base_url=_web_address("exa", url or DEFAULT_URL))


def _local(folder: str) -> Backend:
    if not folder:
        raise ToolUnavailable("The browser backend local needs a folder: local:DIR.")
    try:
        path = Path(folder).expanduser()
    except RuntimeError:  # the home of an unknown user
        path = Path(folder)
    if not path.is_dir():
        raise ToolUnavailable(f"The browser backend local:{folder} needs a folder that exists.")
    from tools.browser.backends.local import LocalBackend

    return LocalBackend(path)


def _web_address(name: str, url: str) -> str:
    if not url.startswith(("http://", "https://")) or not url.partition("//")[2].strip("/"):
        need = "an address with http:// or https://"
        raise ToolUnavailable(f"The browser backend {name} needs {need}, not {url!r}.")
    return url.rstrip("/")
