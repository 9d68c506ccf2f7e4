"""Where the store of `--store` is, and what the operator reads about it."""

from pathlib import Path

from gpt_oss_server.settings import SettingsError
from gpt_oss_server.stores.sealing import state_folder
from inference.paths import UnknownHome, expanded_path

_FILE = "store.sqlite"


def sqlite_file(place: str) -> Path:
    """The file of `sqlite:PATH`, or of `sqlite` alone. The folder of the latter is created."""
    named = place.removeprefix("sqlite").removeprefix(":")
    try:
        if named:
            return expanded_path(named, "file")
        folder = state_folder()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except UnknownHome as error:
        raise SettingsError(f"--store: {error}") from error
    except (OSError, RuntimeError) as error:  # RuntimeError: no home folder
        raise SettingsError(
            f"--store sqlite cannot use the user's state folder: {error}. Name a file: --store sqlite:PATH"
        ) from error
    return folder / _FILE


def kept_where(place: str) -> str:
    """What is kept where, and what a restart loses."""
    kind, _, rest = place.partition(":")
    if kind == "memory":
        return "memory: a restart loses responses and conversations (--store sqlite keeps them)"
    if kind == "sqlite":
        return f"{sqlite_file(place)}: responses and conversations outlive a restart"
    host = rest.removeprefix("//").rpartition("@")[2].partition("?")[0]  # without user and password
    return f"postgres://{host}: responses and conversations outlive a restart; servers may share them"
