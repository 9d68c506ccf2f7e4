"""How torch starts: what is loaded before it is imported, and what is left out of its import.

Linking its libraries takes the system a quarter of a second or, from a cold disk, many; Python's lock is free
meanwhile if it happens before the import. The import itself registers in Python how operators infer shapes
without data: a fifth of its time. After `defer_meta_registrations`, that module stays empty until a compiler,
or a use of one of its names, asks for it. Call it where torch runs models and nothing else: code that traces
without a compiler would miss the registrations.
"""

import ctypes
import importlib.util
import os
import sys
import threading
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

_DEFERRED = "torch._meta_registrations"
_NEEDING_IT = frozenset({"torch._dynamo", "torch._inductor"})  # torch imports them when they are first used
_running = threading.RLock()


def let_idle_threads_sleep() -> None:
    """Spinning OpenMP threads cost nine tenths of the speed when other work shares few cores. OpenMP reads
    these variables once, when torch's libraries are first loaded."""
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "0")


def preload_torch() -> threading.Thread | None:
    """The thread that loads; None where the libraries have no known place, or are loaded."""
    spec = None if "torch" in sys.modules else importlib.util.find_spec("torch")
    if sys.platform != "linux" or spec is None or spec.origin is None:
        return None
    library = Path(spec.origin).parent / "lib" / "libtorch_cpu.so"
    if not library.is_file():
        return None
    let_idle_threads_sleep()
    defer_meta_registrations()
    thread = threading.Thread(target=_link, args=(library,), name="preload torch", daemon=True)
    thread.start()
    return thread


def _link(library: Path) -> None:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return  # importing torch will link it with its own search paths, or state the reason


def defer_meta_registrations() -> None:
    """Does nothing if torch has been imported."""
    if "torch" not in sys.modules and not any(isinstance(finder, _Finder) for finder in sys.meta_path):
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
