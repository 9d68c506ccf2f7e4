"""What is loaded and set before torch is imported.

Linking its libraries takes the system a quarter of a second or, from a cold disk, many; Python's lock is free
meanwhile if it happens before the import.
"""

import ctypes
import importlib.util
import os
import sys
import threading
from contextlib import suppress
from pathlib import Path


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
    thread = threading.Thread(target=_link, args=(library,), name="preload torch", daemon=True)
    thread.start()
    return thread


def _link(library: Path) -> None:
    with suppress(OSError):  # importing torch will link it with its own search paths, or state the reason
        ctypes.CDLL(str(library))
