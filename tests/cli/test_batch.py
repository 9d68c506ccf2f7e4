"""`batch`: a file of requests is answered once, whatever is interrupted; the exit code says what failed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from gpt_oss_server.cli.main import main
from gpt_oss_server.settings import Settings
from tests.batches.test_batches import ANSWER, Recording, line, wait_for_answers
from tests.doubles.serving import scripted, serving
from tests.doubles.waiting import wait_until


def asked(folder: Path, url: str, *lines: object) -> tuple[str, ...]:
    """The words of a command that asks these requests."""
    written = [each if isinstance(each, str) else json.dumps(each) for each in lines]
    (folder / "in.jsonl").write_text("\n".join(written))
    return ("batch", f"{folder}/in.jsonl", "--out", f"{folder}/out.jsonl", "--url", url)


def statuses(folder: Path) -> dict[str, int]:
    answers = [json.loads(each) for each in (folder / "out.jsonl").read_text().splitlines()]
    named = {answer["custom_id"]: answer["response"]["status_code"] for answer in answers}
    assert len(named) == len(answers)
    return named


@contextmanager
def begun(
    folder: Path, engine: Any
) -> Iterator[tuple["subprocess.Popen[str]", tuple[str, ...], openai.OpenAI, str]]:
    """A command whose batch has its first answers, its words, a client, and the batch's id."""
    with (
        serving(engine, Settings(batch_concurrent=2)) as url,
        openai.OpenAI(base_url=url, api_key="none") as client,
    ):
        words = asked(folder, url, *(line(f"r{number}") for number in range(12)))
        with subprocess.Popen(
            [sys.executable, "-m", "gpt_oss_server", *words],
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
        ) as process:
            batch = wait_until(lambda: client.batches.list().data)[0]
            wait_for_answers(client, batch)
            yield process, words, client, batch.id


def test_what_the_file_answers_is_not_asked_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    engine = Recording(scripted(ANSWER))
    with serving(engine) as url:
        lines = [line(f"r{number}") for number in range(9)]
        words = asked(tmp_path, url, *lines, "", line("wrong", temperature=9))
        assert main(words) == 1
        assert statuses(tmp_path) == {**{f"r{number}": 200 for number in range(9)}, "wrong": 400}
        assert "has answers to 10 of 10; 1 of them with an error." in capsys.readouterr().err
        with openai.OpenAI(base_url=url, api_key="none") as client:
            assert not client.files.list().data
        assert main(words) == 1
        assert len(engine.samplings) == 9
        answers = (tmp_path / "out.jsonl").read_text().splitlines(keepends=True)
        right = [each for each in answers if json.loads(each)["custom_id"] != "wrong"]
        (tmp_path / "out.jsonl").write_text("".join(right))
        assert main(asked(tmp_path, url, *lines, line("wrong"))) == 0
        assert len(engine.samplings) == len(statuses(tmp_path)) == 10


def test_an_interrupted_command_waits_again_for_the_same_batch(tmp_path: Path) -> None:
    engine = Recording(scripted(ANSWER, tokens_per_second=6))
    with begun(tmp_path, engine) as (first, words, client, batch):
        first.send_signal(signal.SIGINT)
        _, told = first.communicate(timeout=60)
        assert (first.returncode, (tmp_path / "out.jsonl").exists()) == (130, False)
        assert f"The server goes on with {batch}." in told
        assert main(words) == 0
        assert (len(statuses(tmp_path)), len(engine.samplings)) == (12, 12)
        assert len(client.batches.list().data) == 1


def test_a_cancelled_batch_is_continued(tmp_path: Path) -> None:
    with begun(tmp_path, scripted(ANSWER, tokens_per_second=6)) as (first, words, client, batch):
        client.batches.cancel(batch)
        _, told = first.communicate(timeout=60)
        assert first.returncode == 1
        assert "The batch is cancelled." in told
        assert 0 < len(statuses(tmp_path)) < 12
        assert main(words) == 0
        assert set(statuses(tmp_path).values()) == {200}
        assert len(statuses(tmp_path)) == 12


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ("{", "Line 3 of"),
        ({"method": "POST"}, "is not an object with a `custom_id`"),
        (line("last"), "Line 4: The custom_id 'last' is in an earlier line too."),
        (line("a", "/v1/completions"), "Line 3: `method` must be POST and `url`"),
    ],
)
def test_a_wrong_line_is_named(
    tmp_path: Path, bad: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(scripted(ANSWER)) as url:
        assert main(asked(tmp_path, url, line("r0"))) == 0
        assert main(asked(tmp_path, url, line("r0"), line("r1"), bad, line("last"))) == 1
    assert why in capsys.readouterr().err
    assert statuses(tmp_path) == {"r0": 200}


def test_a_wrong_out_is_named_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["batch", "in.jsonl", "--out", f"{tmp_path}/no/out.jsonl"]) == 1
    assert "there is no folder" in capsys.readouterr().err
    requests = tmp_path / "in.jsonl"
    requests.write_text('{"custom_id": "a"}')
    assert main(["batch", str(requests), "--out", str(requests)]) == 1
    assert "no answers" in capsys.readouterr().err
