"""Configuration files, files of secrets, and `config`, which shows where each value comes from."""

from __future__ import annotations

import argparse
import json
import tomllib
from pathlib import Path

import pytest

from gpt_oss_server.cli.line.flags import add_flags
from gpt_oss_server.settings import (
    OPTIONS,
    Configuration,
    Settings,
    SettingsError,
    misspelt_variables,
    read_configuration,
)
from gpt_oss_server.settings.options import Option
from gpt_oss_server.settings.shown import as_json, as_toml, is_hidden
from gpt_oss_server.settings.sources import reads_file
from tests.doubles.commands import run

PREFIX = "GPT_OSS_SERVER_"


def read(*words: str, **environ: str) -> Configuration:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    variables = {PREFIX + name: value for name, value in environ.items()}
    return read_configuration(vars(parser.parse_args(words)), variables)


def written(folder: Path, text: str, name: str = "server.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


def test_a_flag_wins_over_a_variable_and_both_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1\nhost = 'a.example'\nmax_choices = 3\n")
    found = read("--config", file, "--port", "9", PORT="5", HOST="b.example")
    settings = found.settings
    assert (settings.port, settings.host, settings.max_choices) == (9, "b.example", 3)
    assert settings.max_connections == Settings().max_connections
    assert {name: found.sources.get(name) for name in ("port", "host", "max_choices", "max_connections")} == {
        "port": "--port",
        "host": f"{PREFIX}HOST",
        "max_choices": file,
        "max_connections": None,
    }


def test_the_variable_names_the_file_too(tmp_path: Path) -> None:
    assert read(CONFIG=written(tmp_path, "port = 77")).settings.port == 77


def test_every_kind_of_value_is_read_from_the_file(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        'max-body-bytes = "2MiB"\nkeep_alive = 0.5\nstore_default = false\ncontext = "none"\n'
        'served_model_name = ["a", "b,c"]\nallow_host = "one.example"\ndevice = "CPU"\n'
        'shutdown_grace = "1m"\n',
    )
    settings = read("--config", file).settings
    assert (settings.max_body_bytes, settings.keep_alive, settings.store_default) == (2 * 1024**2, 0.5, False)
    assert (settings.served_model_name, settings.allow_host) == (("a", "b,c"), ("one.example",))
    assert (settings.context, settings.device, settings.shutdown_grace) == (None, "cpu", 60.0)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("prot = 1", "there is no setting prot. Did you mean port?"),
        ("ctx_size = 1", "there is no setting ctx_size. Did you mean context?"),
        ("zzzzzz = 1", "`gpt-oss-server config` lists all settings."),
        ("[network]\nport = 1", "[network] is a table"),
        ("port = 'x'", "port must be a whole number from 0 to 65535, not 'x'."),
        ("port = true", "port must be a whole number from 0 to 65535, not true."),
        ("port = [1]", "port must be a whole number from 0 to 65535, not a list."),
        ("allow_host = [1]", "allow_host must be one or more host names"),
        ("config = 'x'", "config cannot be set in a configuration file."),
        ("max_choices = 1\nmax-choices = 2", "sets max_choices twice"),
        ("port 1", "is not TOML: "),
    ],
)
def test_an_unusable_file_is_reported_in_a_sentence(tmp_path: Path, text: str, sentence: str) -> None:
    file = written(tmp_path, text)
    with pytest.raises(SettingsError) as raised:
        read("--config", file)
    assert str(raised.value).startswith(file)
    assert sentence in str(raised.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"gone\.toml cannot be read: No such file"):
        read("--config", str(tmp_path / "gone.toml"))
    (tmp_path / "latin").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match="latin cannot be read: it is not UTF-8"):
        read("--config", str(tmp_path / "latin"))


@pytest.mark.parametrize("flag", ["--config", "--engine-key-file"])
def test_the_home_of_an_unknown_user_is_a_sentence(flag: str) -> None:
    with pytest.raises(SettingsError, match=rf"^{flag}: ~nobody-here/x names no file"):
        read(flag, "~nobody-here/x")


# --- secrets ---------------------------------------------------------------------------------------


def test_a_secret_is_read_from_a_file_however_the_file_is_named(tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret\n", "key")
    config = written(tmp_path, f"engine_key_file = '{secret}'")
    for found, source in (
        (read("--engine-key-file", secret), "--engine-key-file"),
        (read(ENGINE_KEY_FILE=secret), f"{PREFIX}ENGINE_KEY_FILE"),
        (read("--config", config), f"engine_key_file of {config}"),
    ):
        assert found.settings.engine_key == "s3cret"
        assert found.sources["engine_key"] == f"{source} ({secret})"


def test_a_secret_file_that_cannot_serve_is_reported_without_its_text(tmp_path: Path) -> None:
    empty = written(tmp_path, " \n", "empty")
    with pytest.raises(SettingsError, match="is empty"):
        read("--engine-key-file", empty)
    with pytest.raises(SettingsError, match="gone cannot be read"):
        read(ENGINE_KEY_FILE=str(tmp_path / "gone"))
    wrong = written(tmp_path, "mysql://u:s3cret@h/db", "place")
    with pytest.raises(SettingsError, match="the file's text is something else") as raised:
        read(STORE_FILE=wrong)
    assert "s3cret" not in str(raised.value)


def test_a_value_and_its_file_exclude_each_other(tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret", "key")
    with pytest.raises(SettingsError, match="--engine-key or --engine-key-file, not both"):
        read("--engine-key", "x", "--engine-key-file", secret)
    with pytest.raises(SettingsError, match="ENGINE_KEY or GPT_OSS_SERVER_ENGINE_KEY_FILE, not both"):
        read(ENGINE_KEY="x", ENGINE_KEY_FILE=secret)
    assert read("--engine-key", "flag", ENGINE_KEY_FILE=secret).settings.engine_key == "flag"


def test_only_settings_that_may_be_secret_are_read_from_files() -> None:
    assert {"engine_key", "store"} <= {option.name for option in OPTIONS if reads_file(option, OPTIONS)}
    assert misspelt_variables({f"{PREFIX}ENGINE_KEY_FILE": "x"}) == []
    assert misspelt_variables({f"{PREFIX}ENGINE_KEY_FLIE": "x"}) == [
        (f"{PREFIX}ENGINE_KEY_FLIE", f"{PREFIX}ENGINE_KEY_FILE")
    ]


def test_a_setting_of_that_name_comes_before_the_file_of_a_secret() -> None:
    key = next(option for option in OPTIONS if option.name == "engine_key")
    own = Option("engine_key_file", None, key.kind, "Model", "")
    assert not reads_file(key, (key, own))


# --- the command -----------------------------------------------------------------------------------


def row(name: str) -> Option:
    return next(option for option in OPTIONS if option.name == name)


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("engine_key", "s3cret", '"(hidden)"'),
        ("store", "postgres://me:s3cret@db/x?password=s3cret", '"postgres://***@db/x?***"'),
        ("store", "sqlite:/var/x.db", '"sqlite:/var/x.db"'),
        ("mcp", ("a=https://u:s3cret@h/mcp?key=s3cret", "b=cmd"), '["a=https://***@h/mcp?***", "b=cmd"]'),
    ],
)
def test_a_secret_is_never_shown(name: str, value: object, shown: str) -> None:
    assert as_toml(row(name), value) == shown
    assert "s3cret" not in json.dumps(as_json(row(name), value))
    assert is_hidden(row(name), value) is ("s3cret" in str(value))


def test_what_config_prints_is_a_configuration_file_with_the_same_settings(tmp_path: Path) -> None:
    file = written(tmp_path, 'keep_alive = 0.5\nidentity = "A \\"b\\"\\n€"\nstore_max_age = "90s"\n')
    done = run("config", "--config", file, "--port", "9", "--served-model-name", "x,y", fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "port = 9" in done.stdout
    again = read("--config", written(tmp_path, done.stdout, "again.toml"))
    assert set(tomllib.loads(done.stdout)) == {option.name for option in OPTIONS} - {"config"}
    expected = read("--config", file, "--port", "9", "--served-model-name", "x,y").settings
    for option in OPTIONS:
        if option.name != "config":
            assert getattr(again.settings, option.name) == getattr(expected, option.name)


def test_config_shows_where_a_value_comes_from_and_no_secret(tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret", "key")
    words = ("config", "--changed", "--engine-key-file", secret)
    done = run(*words, env={f"{PREFIX}PORT": "9"})
    rows = [line.split(" # ") for line in done.stdout.splitlines() if " = " in line]
    assert [[part.strip() for part in row] for row in rows] == [
        ['# engine_key = "(hidden)"', f"--engine-key-file ({secret})"],
        ["port = 9", f"{PREFIX}PORT"],
    ]
    as_json_too = run(*words, "--json", env={f"{PREFIX}PORT": "9"})
    assert json.loads(as_json_too.stdout)["port"] == {"value": 9, "source": f"{PREFIX}PORT"}
    assert "s3cret" not in done.stdout + as_json_too.stdout
