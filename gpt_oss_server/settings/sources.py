"""Where the values of settings come from: flags, variables, a configuration file, and files of secrets.

It must not know individual settings, but for `config`, which names the file, and `models`, which has tables
in it.
"""

import difflib
import shlex
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpt_oss_server.settings.options import Option, SettingsError
from inference.paths import expanded_path

CONFIG = "config"
MODELS = "models"
FILE = "_file"  # `engine_key_file` names the file that holds `engine_key`
_LIKE = 0.6
Read = tuple[object, str]  # a value, and where it comes from


def read_values(
    options: Sequence[Option], given: Mapping[str, Any], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[str, str]]:
    """The values that are set, and where each comes from."""
    read: dict[str, Read] = {}
    for option in options:
        if value := _of_command_line(option, options, given) or _of_environment(option, options, environ):
            read[option.name] = value
    file, _ = read.get(CONFIG, (None, ""))
    if file is not None:
        read = _of_file(file_of(str(file), f"--{CONFIG}"), options) | read
    values = {name: value for name, (value, _) in read.items()}
    return values, {name: source for name, (_, source) in read.items()}


def file_of(name: str, source: str) -> Path:
    """The file that a setting names. Raises `SettingsError` for the home of an unknown user."""
    return expanded_path(name, "file", lambda why: SettingsError(f"{source}: {why}"))


def reads_file(option: Option, options: Sequence[Option]) -> bool:
    """Whether a file may hold the setting. A setting of that name, with rules of its own, comes first."""
    return option.secret != "no" and all(other.name != option.name + FILE for other in options)


def file_flag(option: Option) -> str:
    return f"{option.flag}-file"


def variables_of(option: Option, options: Sequence[Option]) -> list[str]:
    """The variable of the setting, and the one that names its file."""
    return [option.variable, *([option.variable + FILE.upper()] if reads_file(option, options) else [])]


def _of_command_line(option: Option, options: Sequence[Option], given: Mapping[str, Any]) -> Read | None:
    path = given.get(option.name + FILE) if reads_file(option, options) else None
    if option.name in given and path is not None:
        raise SettingsError(f"Give {option.flag} or {file_flag(option)}, not both.")
    if option.name in given:
        return option.from_flag(given[option.name]), option.flag
    return None if path is None else of_secret_file(option, path, file_flag(option))


def _of_environment(option: Option, options: Sequence[Option], environ: Mapping[str, str]) -> Read | None:
    names = [name for name in variables_of(option, options) if environ.get(name)]
    if len(names) > 1:
        raise SettingsError(f"Set {names[0]} or {names[1]}, not both.")
    if not names:
        return None
    [name] = names
    if name != option.variable:
        return of_secret_file(option, environ[name], name)
    return option.read(environ[name], name), name


def of_secret_file(option: Option, path: str, source: str) -> Read:
    text = text_in(file_of(path, source), source).strip()
    where = f"{source} ({path})"
    if not text:
        raise SettingsError(f"{source}: the file {path} is empty.")
    if option.kind.many:
        values = tuple(line.strip() for line in text.splitlines() if line.strip())
        if not option.kind.holds(values):
            raise SettingsError(f"{where} {option.kind.must}, one a line.")
        return values, where
    # The text is a secret: an error must not quote it.
    try:
        return option.read(text, where), where
    except SettingsError:
        raise SettingsError(f"{where} {option.kind.must}; the file's text is something else.") from None


def text_in(path: Path, source: str) -> str:
    """The text of a file that a setting names. Raises `SettingsError`."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise SettingsError(f"{source}: the file {path} cannot be read: {why}.") from error


# --- the configuration file ------------------------------------------------------------------------


def _of_file(path: Path, options: Sequence[Option]) -> dict[str, Read]:
    try:
        rows = tomllib.loads(text_in(path, "--config"))
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{path} is not TOML: {error}. A row is such as: port = 9000") from error
    known = {option.name: option for option in options if option.name != CONFIG}
    files = {option.name + FILE: option for option in known.values() if reads_file(option, options)}
    read: dict[str, Read] = {}
    for written, value in rows.items():
        name = written.replace("-", "_")
        if name == MODELS and isinstance(value, dict):
            value = [_of_table(each, table, f"{path}: [{name}.{each}]") for each, table in value.items()]
        option = known.get(name) or files.get(name)
        if option is None:
            raise SettingsError(_unknown(path, written, value, known, files))
        if option.name in read:
            raise SettingsError(f"{path} sets {option.name} twice, as {written} and by another row.")
        if name in files:
            read[option.name] = of_secret_file(option, str(value), f"{written} of {path}")
        else:
            read[name] = (_value(option, value, f"{path}: {written}"), str(path))
    return read


def _of_table(name: str, rows: Mapping[str, object], source: str) -> str:
    """A table `[models.NAME]` of a configuration file as the text of the setting."""
    if not isinstance(rows.get("model"), str):
        raise SettingsError(f'{source}: the table needs a row such as: model = "openai/gpt-oss-20b"')
    words = [f"{name}={rows['model']}"]
    for row, value in rows.items():
        for one in value if isinstance(value, list) else [value]:
            words += [f"{row}={str(one).lower() if isinstance(one, bool) else one}"] if row != "model" else []
    return shlex.join(words)


def _unknown(
    path: Path, written: str, value: object, known: Mapping[str, Option], files: Mapping[str, Option]
) -> str:
    if isinstance(value, dict):
        return (
            f"{path}: [{written}] is a table, but settings are rows without one. Remove the line [{written}]."
        )
    if written == CONFIG:
        return f"{path}: config cannot be set in a configuration file."
    name = written.replace("-", "_")
    other = next((o for o in known.values() if "--" + name.replace("_", "-") in o.also), None)
    close = [other.name] if other else difflib.get_close_matches(name, [*known, *files], 1, _LIKE)
    meant = f" Did you mean {close[0]}?" if close else " `gpt-oss-server config` lists all settings."
    return f"{path}: there is no setting {written}.{meant}"


def _value(option: Option, value: object, source: str) -> object:
    """A value as TOML has it: a text is read like a variable's, and a number like its digits."""
    if isinstance(value, list) and option.kind.many:
        texts = tuple(value)
        if not option.kind.holds(texts):
            raise SettingsError(f"{source} {option.kind.must}, not {value!r}.")
        return texts
    if isinstance(value, str):
        if option.kind.many:
            return _value(option, [value], source)
        return option.read(value, source)
    if isinstance(value, bool):
        if option.kind.holds(value):
            return value
    elif isinstance(value, int | float):
        return option.read(str(value), source)
    shown = str(value).lower() if isinstance(value, bool) else f"a {type(value).__name__}"
    raise SettingsError(f"{source} {option.kind.must}, not {shown}.")
