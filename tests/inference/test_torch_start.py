"""What a served torch leaves out of its import, in processes of their own."""

import subprocess
import sys

import torch  # noqa: F401

from inference.torch_start import defer_meta_registrations

DEFER = "import sys; from inference.torch_start import *;"
DEFERRED = f"{DEFER} defer_meta_registrations(); import torch;"
EMPTY = "type(sys.modules['torch._meta_registrations']).__name__ == '_Deferred'"


def run(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr


def test_a_server_leaves_it_out_until_one_of_its_names_is_used() -> None:
    """Computing tensors does not use one."""
    run(
        "import sys; from inference.torch_start import preload_torch; thread = preload_torch(); import torch;"
        f"assert thread is None or {EMPTY}; import inspect; inspect.getmodule(torch.ones(1));"
        "assert float((torch.ones(3, 4) @ torch.ones(4, 5)).sum()) == 60.0;"
        f"assert thread is None or {EMPTY};"
        f"torch._meta_registrations.register_meta; assert not ({EMPTY})"
    )


def test_a_compiler_finds_it_run() -> None:
    run(
        f"{DEFERRED} made = torch.compile(lambda x: x * 2 + 1, backend='eager');"
        f"assert made(torch.ones(3)).tolist() == [3.0] * 3; assert not ({EMPTY}); register_now()"
    )


def test_a_torch_that_is_there_is_left_as_it_is() -> None:
    finders = list(sys.meta_path)
    defer_meta_registrations()
    assert sys.meta_path == finders
    assert type(sys.modules["torch._meta_registrations"]).__name__ == "module"
