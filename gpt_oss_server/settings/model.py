"""The rows of the settings' table about the model: its names here, its engine's in `inference/options.py`."""

from __future__ import annotations

from dataclasses import dataclass

from gpt_oss_server.settings.options import names, setting, text
from inference.backends.table import known_names
from inference.options import EngineOptions


@dataclass(frozen=True, kw_only=True)
class _NamedModel:
    model: str = setting(
        "tiny",
        text("MODEL"),
        f"{known_names('`')}. `URL,URL` are several servers of one model.",
        also=("-m", "-hf", "--hf-repo"),
        common=True,
    )


@dataclass(frozen=True, kw_only=True)
class ModelSettings(EngineOptions, _NamedModel):
    served_model_name: tuple[str, ...] = setting(
        (),
        names(),
        "A further name that requests may use as `model`; repeatable; `*` allows any.",
        also=("-a", "--alias"),
    )
