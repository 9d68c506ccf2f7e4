"""The settings: flags, variables, configuration files, files of secrets, `config`, and their errors."""

import argparse
import dataclasses
import json
import tomllib
from pathlib import Path

import pytest

from gpt_oss_server.cli.line.flags import add_flags, add_model, settle_words, whole_switches
from gpt_oss_server.settings import OPTIONS, Configuration, Settings, SettingsError, read_configuration
from gpt_oss_server.settings.options import Option
from gpt_oss_server.settings.shown import as_json, as_toml, is_hidden
from gpt_oss_server.settings.table import misspelt_variables
from tests.doubles.commands import run

PREFIX = "GPT_OSS_SERVER_"
ROWS = {option.name: option for option in OPTIONS}


def read(*words: str, **environ: str) -> Configuration:
    """What these words of a command line and these variables, named without the prefix, set."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_model(parser)
    add_flags(parser)
    parsed = vars(parser.parse_args(whole_switches(words)))
    settle_words(parsed)
    return read_configuration(parsed, {PREFIX + name: value for name, value in environ.items()})


def settings(*words: str, **environ: str) -> Settings:
    return read(*words, **environ).settings


def written(folder: Path, text: str, name: str = "server.toml") -> str:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_shown_default_reads_back_as_itself(option: Option) -> None:
    shown = "," if option.default == () else option.shown_default
    assert option.read(shown, "it") == option.default


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("store_max_bytes", {"512MiB": 512 * 1024**2, "1.5 GiB": 3 * 512 * 1024**2, "1000": 1000}),
        ("max_body_bytes", {"2k": 2048}),
        ("store_max_age", {"30d": 30 * 86_400.0, "90": 90.0}),
        ("shutdown_grace", {"0": 0.0}),
        ("keep_alive", {"0.5": 0.5}),
        ("python_timeout", {"1.5s": 1.5}),
        ("context", {"131_072": 131_072, "none": None, "NONE": None}),
        ("port", {"0": 0}),
        ("speculation", {"on": True, "ngram": True, "NGRAM": True, "off": False, "eagle:/a": "eagle:/a"}),
    ],
)
def test_a_written_value_is_read(name: str, values: dict[str, object]) -> None:
    for text, value in values.items():
        assert getattr(settings(ROWS[name].flag, text), name) == value
        assert getattr(settings(**{name.upper(): text}), name) == value


@pytest.mark.parametrize("text", ["on", "true", "YES", "1"])
def test_a_switch_has_two_flags_and_a_variable(text: str) -> None:
    assert settings(LOG_PROMPTS=text).log_prompts is True
    assert settings("--no-store-default").store_default is False
    assert settings("--store-default", STORE_DEFAULT="off").store_default is True


def test_a_repeated_flag_adds_names_and_a_variable_that_is_a_list_has_commas() -> None:
    flag = "--served-model-name"
    assert settings(flag, "a", flag, "*").served_model_name == ("a", "*")
    assert settings(flag, "a,b").served_model_name == ("a,b",)
    assert settings(SERVED_MODEL_NAME="a, b,*").served_model_name == ("a", "b", "*")
    with pytest.raises(SettingsError, match="--served-model-name must be one or more names, not ''"):
        settings(flag, "")


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("PORT", "x", "must be a whole number from 0 to 65535, not 'x'."),
        ("PORT", "65536", "must be a whole number from 0 to 65535, not '65536'."),
        ("CONTEXT", "0", "must be a whole number of at least 1, or none, not '0'."),
        ("DEVICE", "tpu", "must be auto, cpu or cuda, not 'tpu'."),
        ("STORE_MAX_AGE", "0", "must be a time such as 30 (seconds), "),
        ("STORE_MAX_AGE", "9" * 400, "must be a time such as 30 (seconds), "),
        ("KV_MEMORY", "9" * 400, "must be a size in bytes"),
        ("MAX_BODY_BYTES", "12 parsecs", "must be a size in bytes"),
        ("LOG_PROMPTS", "maybe", "must be on or off, not 'maybe'."),
        ("MODEL", "  ", "must be some text"),
        *(
            ("SPECULATION", text, "must be ngram (or on), eagle:FOLDER, or off")
            for text in ("eagle:", "eagle", "medusa:/a", "tiny")
        ),
    ],
)
def test_an_unusable_value_is_reported_in_a_sentence(name: str, text: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        settings(**{name: text})
    assert str(raised.value).startswith(f"{PREFIX}{name} {sentence}")


def test_the_variable_that_kubernetes_sets_is_explained() -> None:
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        settings(PORT="tcp://10.96.0.1:8000")


def test_settings_created_in_python_are_checked_too_and_frozen() -> None:
    ports = [("port", wrong) for wrong in ("8000", True, -1)]
    for name, value in (*ports, ("served_model_name", ["a"]), ("store_default", 1), ("model", "")):
        with pytest.raises(SettingsError, match=name):
            Settings(**{name: value})  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_a_misspelt_variable_is_reported_and_an_unrelated_one_is_not() -> None:
    environ = {"GPT_OSS_SERVER_PROT": "1", "GPT_OSS_SERVER_SERVICE_HOST": "10.0.0.1", "HOME": "/"}
    assert misspelt_variables(environ) == [("GPT_OSS_SERVER_PROT", "GPT_OSS_SERVER_PORT")]


@pytest.mark.parametrize(
    ("line", "model", "value"),
    [
        ("--speculation", "tiny", True),
        ("--speculation /models/a", "/models/a", True),
        ("/models/a --speculation", "/models/a", True),
        ("--speculation --port 9000", "tiny", True),
        ("--speculation eagle:/heads/a /models/a", "/models/a", "eagle:/heads/a"),
        ("--speculation=eagle:/heads/a", "tiny", "eagle:/heads/a"),
        ("--no-speculation /models/a", "/models/a", False),
        ("--speculation off /models/a", "/models/a", False),
    ],
)
def test_a_switch_takes_the_next_word_only_if_it_is_a_value(line: str, model: str, value: object) -> None:
    read = settings(*line.split())
    assert (read.model, read.speculation) == (model, value)


def test_a_wrong_value_of_a_switch_is_not_taken_for_the_model() -> None:
    for word in ("eagle:", "medusa:/heads/a"):
        assert whole_switches(["--speculation", word]) == [f"--speculation={word}"]
    assert whole_switches(["--speculation", "llama:http://x"]) == ["--speculation=on", "llama:http://x"]


def test_a_flag_wins_over_a_variable_and_both_over_the_file(tmp_path: Path) -> None:
    file = written(tmp_path, "port = 1\nhost = 'a.example'\nmax_choices = 3\n")
    configuration = read("--config", file, "--port", "9", PORT="5", HOST="b.example")
    values = configuration.settings
    assert (values.port, values.host, values.max_choices) == (9, "b.example", 3)
    assert values.max_connections == Settings().max_connections
    sources = {"config": "--config", "port": "--port", "host": f"{PREFIX}HOST", "max_choices": file}
    assert configuration.sources == sources
    assert settings(CONFIG=file).port == 1, "the variable names the file too"
    assert settings(PORT="1", HOST="") == Settings(port=1), "an empty variable is unset"


def test_every_kind_of_value_is_read_from_the_file(tmp_path: Path) -> None:
    lines = (
        'max-body-bytes = "2MiB"\nkeep_alive = 0.5\nstore_default = false\ncontext = "none"\n'
        'served_model_name = ["a", "b,c"]\nallow_host = "one.example"\ndevice = "CPU"\n'
        'shutdown_grace = "1m"\n'
    )
    values = settings("--config", written(tmp_path, lines))
    assert (values.max_body_bytes, values.keep_alive, values.store_default) == (2 * 1024**2, 0.5, False)
    assert (values.served_model_name, values.allow_host) == (("a", "b,c"), ("one.example",))
    assert (values.context, values.device, values.shutdown_grace) == (None, "cpu", 60.0)


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


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("--config {folder}/gone.toml", r"gone\.toml cannot be read: No such file"),
        ("--config {folder}/latin", "latin cannot be read: it is not UTF-8"),
        ("--config ~nobody-here/x", "^--config: ~nobody-here/x names no file"),
        ("--engine-key-file ~nobody-here/x", "^--engine-key-file: ~nobody-here/x names no file"),
        ("--engine-key-file {folder}/empty", "is empty"),
        ("--engine-key-file {folder}/gone", "gone cannot be read"),
        ("--engine-key x --engine-key-file y", "--engine-key or --engine-key-file, not both"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, line: str, sentence: str) -> None:
    (tmp_path / "latin").write_bytes(b"\xff")
    written(tmp_path, " \n", "empty")
    with pytest.raises(SettingsError, match=sentence):
        read(*line.format(folder=tmp_path).split())


def test_a_secret_is_read_from_a_file_however_the_file_is_named(tmp_path: Path) -> None:
    secret = written(tmp_path, "s3cret\n", "key")
    config = written(tmp_path, f"engine_key_file = '{secret}'")
    for configuration, source in (
        (read("--engine-key-file", secret), "--engine-key-file"),
        (read(ENGINE_KEY_FILE=secret), f"{PREFIX}ENGINE_KEY_FILE"),
        (read("--config", config), f"engine_key_file of {config}"),
    ):
        assert configuration.settings.engine_key == "s3cret"
        assert configuration.sources["engine_key"] == f"{source} ({secret})"
    with pytest.raises(SettingsError, match="ENGINE_KEY or GPT_OSS_SERVER_ENGINE_KEY_FILE, not both"):
        read(ENGINE_KEY="x", ENGINE_KEY_FILE=secret)
    assert settings("--engine-key", "flag", ENGINE_KEY_FILE=secret).engine_key == "flag"


def test_a_secret_file_that_cannot_serve_is_reported_without_its_text(tmp_path: Path) -> None:
    wrong = written(tmp_path, "mysql://u:s3cret@h/db", "place")
    with pytest.raises(SettingsError, match="the file's text is something else") as raised:
        read(STORE_FILE=wrong)
    assert "s3cret" not in str(raised.value)


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
    assert as_toml(ROWS[name], value) == shown
    assert "s3cret" not in json.dumps(as_json(ROWS[name], value))
    assert is_hidden(ROWS[name], value) is ("s3cret" in str(value))


def test_what_config_prints_is_a_configuration_file_with_the_same_settings(tmp_path: Path) -> None:
    file = written(tmp_path, 'keep_alive = 0.5\nidentity = "A \\"b\\"\\n€"\nstore_max_age = "90s"\n')
    words = ("--config", file, "--port", "9", "--served-model-name", "x,y")
    done = run("config", *words, fresh=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert "port = 9" in done.stdout
    assert set(tomllib.loads(done.stdout)) == {option.name for option in OPTIONS} - {"config"}
    again = settings("--config", written(tmp_path, done.stdout, "again.toml"))
    assert dataclasses.replace(again, config=file) == settings(*words)


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
