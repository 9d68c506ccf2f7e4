"""`python -m inference.bench`: needs torch, numpy and safetensors; on a GPU Triton too."""

from __future__ import annotations

import os
import sys

if __name__ == "__main__":
    # Read when torch is imported: idle threads that spin beside other work cost nine tenths of the speed.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    from inference.bench.command import main

    sys.exit(main())
