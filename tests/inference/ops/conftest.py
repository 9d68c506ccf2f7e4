"""Runs kernels on a GPU if available, otherwise in Triton's interpreter, in float32 on the CPU."""

import functools
import os
from typing import Any

import pytest
import torch

if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"  # read when the kernels are imported
    import triton
    from triton.runtime import interpreter

    _prepared = interpreter._patch_lang_tensor

    def _with_bounds_of_loops(tensor: Any, *scope: Any) -> None:
        """Triton before 3.7 calls `int` on an array of one element, which numpy has refused since 2.4. Triton
        restores the original attribute after a launch."""
        _prepared(tensor, *scope)
        tensor.__index__ = lambda self: self.handle.data.item()

    interpreter._patch_lang_tensor = _with_bounds_of_loops
    _converted = interpreter._convert_float

    def _rounded_as_a_card_does(input: Any, input_dtype: Any, output_dtype: Any, rounding_mode: Any) -> Any:
        """Triton's own loses the carry of a mantissa that is rounded up, and numbers below 2^-6."""
        if (input_dtype, output_dtype) == (triton.language.float32, triton.language.float8e4nv):
            values = torch.from_numpy(input.astype("float32")).to(torch.float8_e4m3fn)
            return values.view(torch.uint8).numpy()
        return _converted(input, input_dtype, output_dtype, rounding_mode)

    interpreter._convert_float = _rounded_as_a_card_does
    _patched, _launched = interpreter._patch_lang, interpreter.GridExecutor.__call__
    _languages_patched: set[frozenset[str]] = set()

    @functools.cache
    def _languages_of(function: Any) -> frozenset[str]:
        languages = (triton.language, triton.language.core)
        return frozenset(each.__name__ for each in languages if each in function.__globals__.values())

    def _patched_once(function: Any) -> Any:
        """Triton's own searches the whole language at each call of a device function: half of all time."""
        languages = _languages_of(function)
        if languages in _languages_patched:
            return None
        _languages_patched.add(languages)
        return _patched(function)

    def _launched_afresh(launch: Any, *args: Any, **kwargs: Any) -> None:
        _languages_patched.clear()
        _launched(launch, *args, **kwargs)

    interpreter._patch_lang, interpreter.GridExecutor.__call__ = _patched_once, _launched_afresh


@pytest.fixture(scope="session")
def device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
