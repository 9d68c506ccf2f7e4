"""Begins to load torch's libraries before torch is imported, and shortens its import.

Linking them takes the system a quarter of a second or, from a cold disk, many. Python's lock is free
meanwhile, which it is not when the import of torch links them.
"""

from __future__ import annotations

import ctypes
import importlib.util
import sys
import threading
from pathlib import Path

from inference.local.deferred import defer_meta_registrations
from inference.threads import let_idle_threads_sleep


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
    thread = threading.Thread(target=_load, args=(library,), name="preload torch", daemon=True)
    thread.start()
    return thread


def _load(library: Path) -> None:
    try:
        ctypes.CDLL(str(library))
    except OSError:
        return  # importing torch will link it with its own search paths, or state the reason
