"""Unmodified tools that measure: guidellm and lm-eval, with the embedded model."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import inference
from gpt_oss_server.settings import Settings
from tests.doubles.clients.running import Recorder, command, recorded, run, run_script
from tests.doubles.observing.figures import Scraped, scraped_at

pytestmark = pytest.mark.clients

REQUESTS, PROMPT, OUTPUT = 6, 100, 32
OFFLINE = {"HF_HUB_OFFLINE": "1", "OPENAI_API_KEY": "any"}
QUESTIONS = (
    {"question": "The capital of France is", "choices": [" Paris", " green"], "answer": 0},
    {"question": "Two plus two is", "choices": [" banana", " four"], "answer": 1},
)
TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: {data}}}}}
test_split: test
doc_to_text: "{{{{question}}}}"
target_delimiter: ""
{more}
"""
CHOICE = """\
output_type: multiple_choice
doc_to_choice: "{{choices}}"
doc_to_target: answer
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ANSWER = """\
output_type: generate_until
doc_to_target: "{{choices[answer]}}"
generation_kwargs: {until: ["\\n\\n"], max_gen_toks: 64, do_sample: false}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


@pytest.fixture
def server() -> Iterator[tuple[str, Recorder]]:
    with recorded(inference.load("tiny"), Settings(model="tiny")) as running:
        yield running


def guidellm(path: str, url: str, folder: Path) -> list[dict[str, Any]]:
    """The requests of a run of the load generator, which all succeed."""
    program = command("guidellm", "guidellm")
    run_script("byte_tokenizer.py", folder, url, "guidellm")
    report = folder / "report.json"
    target = url.removesuffix("/v1")
    options = {
        "--backend": f"kind=openai_http,target={target},model=tiny,request_format={path}",
        "--tokenizer": f"kind=hf_auto,model={folder / 'tokenizer'}",
        "--data": f"kind=synthetic_text,prompt_tokens={PROMPT},output_tokens={OUTPUT}",
        "--profile": "kind=concurrent,streams=2",
        "--constraint": f"kind=max_requests,count={REQUESTS}",
        "--output": f"kind=json,path={report}",
    }
    arguments = [text for option in options.items() for text in option]
    run([program, "run", *arguments, "--disable-console-interactive"], folder, env=OFFLINE)
    [benchmark] = json.loads(report.read_text(encoding="utf-8"))["benchmarks"]
    requests = benchmark["requests"]
    assert [len(requests[kind]) for kind in ("successful", "errored", "incomplete")] == [REQUESTS, 0, 0]
    return requests["successful"]


def mean(figures: Scraped, name: str, **labels: str) -> float:
    return figures.own(f"{name}_sum", **labels) / figures.own(f"{name}_count", **labels)


APIS = {"/v1/completions": "completions", "/v1/chat/completions": "chat", "/v1/responses": "responses"}
SLACK = 0.5  # seconds between the server and a client on a busy machine


@pytest.mark.parametrize("path", APIS)
def test_guidellm_and_the_figures_agree(path: str, server: tuple[str, Recorder], tmp_path: Path) -> None:
    """On tokens to the token; on times within what lies between the engine and the client."""
    (url, recorder), api = server, APIS[path]
    requests, figures = guidellm(path, url, tmp_path), scraped_at(url.removesuffix("/v1"))
    assert {request["output_tokens"] for request in requests} == {OUTPUT}, "as many as it wants"
    assert all(exchange.body["ignore_eos"] for exchange in recorder.of(path))
    assert figures.own("turns_total", api=api) == REQUESTS
    assert figures.own("output_tokens_total", api=api) == REQUESTS * OUTPUT
    assert figures.own("prompt_tokens_total", api=api) == sum(each["prompt_tokens"] for each in requests)
    seen_first = sum(each["time_to_first_token_ms"] for each in requests) / REQUESTS / 1000
    first = mean(figures, "time_to_first_token_seconds", api=api)
    # The server counts from the first token; guidellm sees an answer's text, which the reasoning precedes.
    assert first <= seen_first
    assert api != "completions" or seen_first <= first + SLACK
    seen_whole = sum(each["request_latency"] for each in requests) / REQUESTS
    whole = mean(figures, "request_duration_seconds", api=api)
    assert whole <= seen_whole <= whole + SLACK


def lm_eval(folder: Path, name: str, task: str, *arguments: str) -> dict[str, Any]:
    program = command("lm-eval", "lm-eval")
    data = folder / "questions.jsonl"
    data.write_text("".join(json.dumps(question) + "\n" for question in QUESTIONS), encoding="utf-8")
    text = TASK.format(name=name, data=data, more=task)
    (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    where = ["--tasks", name, "--include_path", str(folder), "--output_path", str(folder / "results.json")]
    run([program, "run", *where, *arguments], folder, env=OFFLINE)
    [written] = folder.glob("results_*.json")
    return json.loads(written.read_text(encoding="utf-8"))["results"][name]


def test_lm_eval_compares_choices(server: tuple[str, Recorder], tmp_path: Path) -> None:
    """The tokenizer is the server's, and the choices are compared by the prompt's log-probabilities."""
    url, recorder = server
    model = f"model=tiny,base_url={url}/completions,tokenizer_backend=remote,num_concurrent=2"
    results = lm_eval(tmp_path, "choice", CHOICE, "--model", "local-completions", "--model_args", model)
    assert results["acc,none"] == 1.0
    scored = recorder.of("/v1/completions")
    assert len(scored) == 4
    assert all(exchange.status == 200 and exchange.body["echo"] for exchange in scored)
    assert {exchange.status for exchange in recorder.exchanges} == {200}


def test_lm_eval_generates_answers(server: tuple[str, Recorder], tmp_path: Path) -> None:
    url, recorder = server
    model = f"model=tiny,base_url={url}/chat/completions"
    chat = ["--model", "local-chat-completions", "--apply_chat_template"]
    results = lm_eval(tmp_path, "answer", ANSWER, *chat, "--model_args", model)
    assert 0 <= results["exact_match,none"] <= 1
    assert len(recorder.of("/v1/chat/completions")) == len(QUESTIONS)
    assert {exchange.status for exchange in recorder.exchanges} == {200}
