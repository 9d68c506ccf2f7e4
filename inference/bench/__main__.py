"""`python -m inference.bench`: needs torch, numpy and safetensors, and Triton on a GPU."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Torch reads these on import. Idle threads that spin take nine tenths of the speed from a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from inference.bench.command import main

    sys.exit(main())
