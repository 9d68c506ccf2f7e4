"""The further models of a server: each has a name, a model, and rows of settings that are its own.

big=vllm:http://gpu:8000 context=65536 served_model_name=large
"""

import difflib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from gpt_oss_server.settings.options import Option, SettingsError
from gpt_oss_server.settings.sources import FILE, MODELS, of_secret_file, reads_file

_NAMED = re.compile(r"([A-Za-z0-9][A-Za-z0-9._-]*)=(.+)", re.DOTALL)
_SECTIONS = ("Model", "Answers")
FORM = "NAME=MODEL, then perhaps ROW=VALUE for settings of its own"


def named(word: str) -> tuple[str, str] | None:
    """The name and the model of a word such as `big=vllm:http://gpu:8000`."""
    match = _NAMED.fullmatch(word)
    return None if match is None else (match[1], match[2])


def rows_of_models(texts: Sequence[str], options: Sequence[Option]) -> dict[str, dict[str, Any]]:
    """By the model's name: the values of its own settings."""
    known = {option.name: option for option in options if option.section in _SECTIONS}
    del known["model"], known["models_max"]
    secret = [known.pop(name) for name, option in [*known.items()] if reads_file(option, options)]
    files = {option.name + FILE: option for option in secret if option.name != MODELS}
    models: dict[str, dict[str, Any]] = {}
    for text in texts:
        try:
            first, *words = shlex.split(text)
        except ValueError as error:
            raise SettingsError(f"--models {text!r}: {error}. Write {FORM}.") from error
        if (found := named(first)) is None:
            raise SettingsError(f"--models must be {FORM}, not {text!r}.")
        name, model = found
        if name in models:
            raise SettingsError(f"--models names {name} twice.")
        models[name] = {"served_model_name": (), "model": model, **_rows(name, words, known, files)}
    return models


def _rows(
    name: str, words: Sequence[str], known: Mapping[str, Option], files: Mapping[str, Option]
) -> dict[str, Any]:
    """A secret is read from a file, as these texts are shown in logs and lists of processes."""
    rows: dict[str, Any] = {}
    for word in words:
        written, equals, text = word.partition("=")
        row, where = written.replace("-", "_"), f"The model {name}: {written}"
        option = known.get(row) or files.get(row)
        if option is None or not equals:
            close = difflib.get_close_matches(row, [*known, *files], 1)
            meant = f" Did you mean {close[0]}?" if close else ""
            raise SettingsError(f"{where} is no setting of a model. Write ROW=VALUE.{meant}")
        value = option.read(text, where) if row in known else of_secret_file(option, text, where)[0]
        if option.name in rows and not option.kind.many:
            raise SettingsError(f"{where} is set twice.")
        rows[option.name] = (*rows.get(option.name, ()), *value) if isinstance(value, tuple) else value
    return rows
