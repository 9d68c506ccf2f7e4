"""`python -m inference.bench`: needs torch, numpy and safetensors, and Triton on a GPU."""

import sys

from inference.bench.command import main
from inference.torch_start import let_idle_threads_sleep

if __name__ == "__main__":
    let_idle_threads_sleep()
    sys.exit(main())
