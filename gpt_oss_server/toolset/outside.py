"""Hosted tools from outside: those of installed packages, and those that a program gives to `create_app`.

A package adds a tool by an entry point of the group `gpt_oss_server.tools` that names a subclass of
`HostedTool`, or a function that returns one. Returns the kinds that a server knows, or raises a SettingsError
that names the package: an operator installed it, and can remove it.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from gpt_oss_server.harmony.declarations import FUNCTIONS
from gpt_oss_server.items.code_interpreter import CodeInterpreter
from gpt_oss_server.items.hosted import HostedTool
from gpt_oss_server.items.shell import Shell
from gpt_oss_server.items.table import Kinds
from gpt_oss_server.items.web_search import WebSearch
from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.kinds.keep import Stores

GROUP = "gpt_oss_server.tools"
_GIVEN = "create_app(tools=…)"
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")


def known_kinds(
    tools: Iterable[HostedTool] = (), *, own: Kinds | None = None, stores: Stores | None = None
) -> Kinds:
    """The server's own kinds, with the files of its stores, those of installed packages, and these tools."""
    if own is None and stores is not None:
        in_containers = (CodeInterpreter(files=stores.files), Shell(stores.files, stores.skills))
        own = Kinds.of(WebSearch(files=stores.vector_stores), *in_containers)
    kinds = own or Kinds.of()
    for origin, tool in (*_installed(), *((_GIVEN, tool) for tool in tools)):
        _check(kinds, tool, origin)
        kinds = kinds.adding(tool, origin)
    return kinds


@cache
def _installed() -> tuple[tuple[str, HostedTool], ...]:
    """Each tool of an installed package, after the package's name and version."""
    points = sorted(entry_points(group=GROUP), key=lambda point: (_package(point), point.name))
    return tuple((_package(point), _load(point)) for point in points)


def _package(point: EntryPoint) -> str:
    return "A package" if point.dist is None else f"The package {point.dist.name} {point.dist.version}"


def _load(point: EntryPoint) -> HostedTool:
    where = f"{_package(point)}, which adds the tool {point.name!r} ({point.value}), cannot be used"
    try:
        make: Callable[[], object] = point.load()
        tool = make()
    except Exception as error:  # it runs the package's code
        raise SettingsError(
            f"{where}: {type(error).__name__}: {error}. Correct the package, or uninstall it."
        ) from error
    if not isinstance(tool, HostedTool):
        raise SettingsError(
            f"{where}: it made a {type(tool).__name__}, not a HostedTool of gpt_oss_server.items.hosted. "
            "Correct the package, or uninstall it."
        )
    return tool


def _check(kinds: Kinds, tool: HostedTool, origin: str) -> None:
    """Refuses a tool that has no name, or one that another has."""
    name = getattr(tool, "namespace", "")
    if not isinstance(name, str) or not _NAME.match(name) or name == FUNCTIONS:
        raise SettingsError(
            f"{origin} adds a tool whose `namespace` is {name!r}: it must be a word that the model can call, "
            f"such as 'dice', and not {FUNCTIONS!r}."
        )
    taken = [
        *([f"the name {name!r}"] if name in kinds.hosted else []),
        *(f"the type {kind!r}" for kind in tool.types if kind in kinds.tools),
        *([f"items of type {tool.item_type!r}"] if tool.item_type in kinds.items else []),
    ]
    if taken:
        other = kinds.origins.get(name, "this server")
        raise SettingsError(
            f"{origin} adds the tool {name!r}, but {other} has {' and '.join(taken)} already. Rename it, or "
            "leave one of the two out."
        )
