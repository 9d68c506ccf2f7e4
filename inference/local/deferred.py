"""Leaves out of torch's import what only its compilers need, until one of them is imported.

While `torch` is imported, it registers in Python how its operators infer shapes without data: a third of the
import's time. Computing tensors does not use this. After `defer_meta_registrations`, that module stays empty
until a compiler, or a use of one of its names, asks for it. Call it before torch is imported, in a process
whose torch runs models and nothing else: code that traces without a compiler would miss the registrations.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_DEFERRED = "torch._meta_registrations"
_NEEDING_IT = frozenset({"torch._dynamo", "torch._inductor"})  # torch imports them when they are first used
_running = threading.RLock()


def defer_meta_registrations() -> None:
    """Does nothing if torch has been imported."""
    if "torch" not in sys.modules and not any(isinstance(each, _Finder) for each in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


def register_now() -> None:
    """Runs the deferred module, if there is one."""
    module = sys.modules.get(_DEFERRED)
    if isinstance(module, _Deferred):
        _run(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name in _NEEDING_IT:
            register_now()
        if name != _DEFERRED:
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _Later(spec.loader)
        return spec


class _Later(Loader):
    def __init__(self, loader: Loader) -> None:
        self.loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self.loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        module.__class__ = _Deferred


class _Deferred(ModuleType):
    """A module that has not run. Names with underscores around them are the interpreter's own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name != "__all__":
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        _run(self)
        return getattr(self, name)


def _run(module: ModuleType) -> None:
    with _running:  # another thread may have run it meanwhile
        spec = module.__spec__
        if spec is not None and isinstance(spec.loader, _Later):
            module.__class__ = ModuleType
            spec.loader = module.__loader__ = spec.loader.loader
            spec.loader.exec_module(module)
