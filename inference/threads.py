"""How the threads of a numeric library behave while they have nothing to do."""

from __future__ import annotations

import os
import sys


def let_idle_threads_sleep() -> None:
    """Spinning OpenMP threads cost nine tenths of the speed when other work shares few cores.

    OpenMP reads these variables once, when torch's libraries are first loaded.
    """
    if "torch" not in sys.modules:
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
        os.environ.setdefault("GOMP_SPINCOUNT", "0")
