"""The table of settings: the values of flags and variables, and the errors for unusable ones."""

from __future__ import annotations

import argparse
import dataclasses

import pytest

from gpt_oss_server.cli.line.flags import add_flags, add_model, settle_words, whole_switches
from gpt_oss_server.settings import (
    OPTIONS,
    Settings,
    SettingsError,
    misspelt_variables,
    read_settings,
)


def parse(*words: str, environ: dict[str, str] | None = None) -> Settings:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(vars(parser.parse_args(words)), environ or {})


def test_without_flags_and_variables_the_defaults_hold() -> None:
    assert parse() == Settings()


@pytest.mark.parametrize("option", OPTIONS, ids=lambda option: option.name)
def test_a_shown_default_reads_back_as_itself(option: object) -> None:
    shown = option.shown_default  # type: ignore[attr-defined]
    if shown == "none" and option.default == ():  # type: ignore[attr-defined]
        shown = ","
    assert option.read(shown, "it") == option.default  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("name", "written", "value"),
    [
        ("store_max_bytes", "512MiB", 512 * 1024**2),
        ("store_max_bytes", "1.5 GiB", 3 * 512 * 1024**2),
        ("store_max_bytes", "1000", 1000),
        ("max_body_bytes", "2k", 2048),
        ("store_max_age", "30d", 30 * 86_400.0),
        ("store_max_age", "90", 90.0),
        ("shutdown_grace", "0", 0.0),
        ("keep_alive", "0.5", 0.5),
        ("python_timeout", "1.5s", 1.5),
        ("context", "131_072", 131_072),
        ("context", "none", None),
        ("context", "NONE", None),
        ("device", "CPU", "cpu"),
        ("port", "0", 0),
    ],
)
def test_a_written_value_is_read(name: str, written: str, value: object) -> None:
    flag = "--" + name.replace("_", "-")
    assert getattr(parse(flag, written), name) == value
    assert getattr(parse(environ={f"GPT_OSS_SERVER_{name.upper()}": written}), name) == value


@pytest.mark.parametrize("text", ["on", "true", "YES", "1"])
def test_a_switch_s_variable_is_on(text: str) -> None:
    assert parse(environ={"GPT_OSS_SERVER_LOG_PROMPTS": text}).log_prompts is True


def test_a_switch_has_two_flags() -> None:
    assert parse("--no-store-default").store_default is False
    assert parse("--store-default", environ={"GPT_OSS_SERVER_STORE_DEFAULT": "off"}).store_default is True


def test_a_flag_wins_over_its_variable_and_an_empty_variable_is_unset() -> None:
    environ = {"GPT_OSS_SERVER_PORT": "1", "GPT_OSS_SERVER_HOST": ""}
    assert parse("--port", "2", environ=environ).port == 2
    assert parse(environ=environ).host == "127.0.0.1"


def test_a_repeated_flag_adds_names() -> None:
    assert parse("--served-model-name", "a", "--served-model-name", "*").served_model_name == ("a", "*")
    assert parse("--served-model-name", "a,b").served_model_name == ("a,b",)
    with pytest.raises(SettingsError, match="--served-model-name must be one or more names, not ''"):
        parse("--served-model-name", "")


def test_a_variable_that_is_a_list_has_commas() -> None:
    assert parse(environ={"GPT_OSS_SERVER_SERVED_MODEL_NAME": "a, b,*"}).served_model_name == ("a", "b", "*")


@pytest.mark.parametrize(
    ("environ", "sentence"),
    [
        ({"PORT": "x"}, "GPT_OSS_SERVER_PORT must be a whole number from 0 to 65535, not 'x'."),
        ({"PORT": "65536"}, "GPT_OSS_SERVER_PORT must be a whole number from 0 to 65535, not '65536'."),
        ({"CONTEXT": "0"}, "GPT_OSS_SERVER_CONTEXT must be a whole number of at least 1, or none, not '0'."),
        ({"DEVICE": "tpu"}, "GPT_OSS_SERVER_DEVICE must be auto, cpu or cuda, not 'tpu'."),
        ({"STORE_MAX_AGE": "0"}, "GPT_OSS_SERVER_STORE_MAX_AGE must be a time such as 30 (seconds), "),
        ({"STORE_MAX_AGE": "9" * 400}, "GPT_OSS_SERVER_STORE_MAX_AGE must be a time such as 30 (seconds), "),
        ({"KV_MEMORY": "9" * 400}, "GPT_OSS_SERVER_KV_MEMORY must be a size in bytes"),
        ({"MAX_BODY_BYTES": "12 parsecs"}, "GPT_OSS_SERVER_MAX_BODY_BYTES must be a size in bytes"),
        ({"LOG_PROMPTS": "maybe"}, "GPT_OSS_SERVER_LOG_PROMPTS must be on or off, not 'maybe'."),
        ({"MODEL": "  "}, "GPT_OSS_SERVER_MODEL must be some text"),
    ],
)
def test_an_unusable_value_is_reported_in_a_sentence(environ: dict[str, str], sentence: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse(environ={f"GPT_OSS_SERVER_{name}": value for name, value in environ.items()})
    assert str(raised.value).startswith(sentence)


def test_the_variable_that_kubernetes_sets_is_explained() -> None:
    with pytest.raises(SettingsError, match="enableServiceLinks"):
        parse(environ={"GPT_OSS_SERVER_PORT": "tcp://10.96.0.1:8000"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"port": "8000"},
        {"port": True},
        {"port": -1},
        {"served_model_name": ["a"]},
        {"store_default": 1},
        {"model": ""},
    ],
    ids=str,
)
def test_settings_created_in_python_are_checked_too(wrong: dict[str, object]) -> None:
    with pytest.raises(SettingsError, match=next(iter(wrong))):
        Settings(**wrong)  # type: ignore[arg-type]


def test_settings_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().port = 1  # type: ignore[misc]


def test_a_misspelt_variable_is_reported_and_an_unrelated_one_is_not() -> None:
    environ = {"GPT_OSS_SERVER_PROT": "1", "GPT_OSS_SERVER_SERVICE_HOST": "10.0.0.1", "HOME": "/"}
    assert misspelt_variables(environ) == [("GPT_OSS_SERVER_PROT", "GPT_OSS_SERVER_PORT")]


@pytest.mark.parametrize(
    ("written", "value"),
    [("on", True), ("ngram", True), ("NGRAM", True), ("off", False), ("eagle:/heads/a", "eagle:/heads/a")],
)
def test_a_switch_that_may_have_a_value_is_read_with_it(written: str, value: object) -> None:
    assert parse("--speculation", written).speculation == value
    assert parse(environ={"GPT_OSS_SERVER_SPECULATION": written}).speculation == value


@pytest.mark.parametrize("written", ["eagle:", "eagle", "medusa:/a", "tiny"])
def test_another_value_of_such_a_switch_is_refused_with_the_right_ones(written: str) -> None:
    with pytest.raises(SettingsError, match=r"must be ngram \(or on\), eagle:FOLDER, or off"):
        parse("--speculation", written)


@pytest.mark.parametrize(
    ("words", "model", "value"),
    [
        (["--speculation"], "tiny", True),
        (["--speculation", "/models/a"], "/models/a", True),
        (["/models/a", "--speculation"], "/models/a", True),
        (["--speculation", "--port", "9000"], "tiny", True),
        (["--speculation", "eagle:/heads/a", "/models/a"], "/models/a", "eagle:/heads/a"),
        (["--speculation=eagle:/heads/a"], "tiny", "eagle:/heads/a"),
        (["--speculation=ngram", "/models/a"], "/models/a", True),
        (["--no-speculation", "/models/a"], "/models/a", False),
        (["--speculation", "off", "/models/a"], "/models/a", False),
    ],
)
def test_a_switch_takes_the_next_word_only_if_it_is_a_value(
    words: list[str], model: str, value: object
) -> None:
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_model(parser)
    add_flags(parser)
    given = vars(parser.parse_args(whole_switches(words)))
    settle_words(given)
    settings = read_settings(given, {})
    assert (settings.model, settings.speculation) == (model, value)


@pytest.mark.parametrize("word", ["eagle:", "medusa:/heads/a"])
def test_a_wrong_value_of_a_switch_is_not_taken_for_the_model(word: str) -> None:
    assert whole_switches(["--speculation", word]) == [f"--speculation={word}"]
    assert whole_switches(["--speculation", "llama:http://x"]) == ["--speculation=on", "llama:http://x"]
