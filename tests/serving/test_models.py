"""Several models behind one address: which one answers, who may use it, and what one that breaks leaves."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from gpt_oss_server.settings import Settings, SettingsError, read_configuration
from inference.backends.script_file import parse_script
from inference.backends.scripted import ScriptedEngine
from inference.engine import EngineFailed, Sampling, Step
from inference.on_demand import Pool
from tests.doubles.apis.api_client import Api, events_in
from tests.doubles.commands import run, script
from tests.doubles.inference.random_checkpoint import SMALLEST, write_random_checkpoint
from tests.doubles.observing.figures import scraped
from tests.doubles.server_process import serving as process_serving
from tests.doubles.serving import VOCABULARY, scripted

FINAL = "<|channel|>final<|message|>{}<|return|>"
CHAT = {"messages": [{"role": "user", "content": "Hi"}]}
BODIES: dict[str, dict[str, Any]] = {
    "/responses": {"input": "Hi"},
    "/chat/completions": CHAT,
    "/completions": {"prompt": "Hi", "max_tokens": 99},
    "/messages": {"max_tokens": 99, **CHAT},
}


def one(text: str) -> ScriptedEngine:
    return scripted(FINAL.format(text), loop=True)


class Failing(ScriptedEngine):
    """Fails every third generation."""

    def __init__(self, turns: list[str], **options: Any) -> None:
        super().__init__(parse_script({"turns": turns, **options}, VOCABULARY))
        self._count = 0

    async def generate(self, tokens: Sequence[int], sampling: Sampling) -> AsyncGenerator[Step, None]:
        self._count += 1
        if self._count % 3 == 0:
            raise EngineFailed("Its card is gone for a moment.")
        async for step in super().generate(tokens, sampling):
            yield step


def api_of(settings: Settings | None = None, **texts: str) -> Api:
    first, *others = texts.items()
    return Api(one(first[1]), settings, models={name: one(text) for name, text in others})


def text_of(response: dict[str, Any]) -> str:
    return str(response["output"][-1]["content"][0]["text"])


def text_in(answer: dict[str, Any]) -> str:
    """The text of an answer of any API."""
    if "choices" in answer:
        choice = answer["choices"][0]
        return str(choice["message"]["content"] if "message" in choice else choice["text"])
    if answer.get("object") == "response":
        return text_of(answer)
    return "".join(block["text"] for block in answer["content"] if block["type"] == "text")


async def test_each_api_answers_by_the_model_that_the_request_names() -> None:
    api = api_of(first="I am the first.", big="I am big.")
    for name, said in ((None, "I am the first."), ("scripted", "I am the first."), ("big", "I am big.")):
        for path, body in BODIES.items():
            answer = await api.post(path, **body, **({} if name is None else {"model": name}))
            assert answer["model"] == (name or "scripted")
            assert text_in(answer).removeprefix("final") == said
    refused = await api.refused("/responses", input="Hi", model="huge")
    assert (refused["code"], refused["status"]) == ("model_not_found", 404)
    assert "Served: scripted, big." in refused["message"]


async def test_a_conversation_may_change_its_model() -> None:
    api = api_of(first="I am the first.", big="I am big.")
    first = await api.create()
    second = await api.create(previous_response_id=first["id"], model="big", input="And you?")
    further = {"previous_response_id": second["id"], "input": "Who else?"}
    prompts = [(await api.post("/../render", model=name, **further))["text"] for name in ("scripted", "big")]
    assert prompts[0] == prompts[1]
    assert prompts[0].index("I am the first.") < prompts[0].index("I am big.")


async def test_no_request_gets_the_tokens_of_another_model() -> None:
    """One engine fails every third generation; each request ends properly, and with its own model's text."""
    words = {"scripted": "first", "big": "second", "odd": "third"}
    odd = Failing([FINAL.format("third")], loop=True)
    api = Api(one("first"), models={"big": one("second"), "odd": odd})
    draws = random.Random(64)

    async def ask() -> str:
        (path, body), name = draws.choice([*BODIES.items()]), draws.choice([*words])
        answer = await api.client.post(path, json={"model": name, **body})
        if answer.status_code != 200:
            assert (answer.status_code, name) == (503, "odd"), answer.text
            return "failed"
        assert words[name] in text_in(answer.json())
        return name

    outcomes = [outcome for _ in range(10) for outcome in await asyncio.gather(*(ask() for _ in range(30)))]
    assert {*outcomes} == {*words, "failed"}


async def test_models_have_settings_of_their_own() -> None:
    big = "big=x default_reasoning_effort=high 'identity=You are big.' served_model_name=large"
    api = api_of(Settings(models=(big,), default_reasoning_effort="low"), first="1", big="2")
    for name, effort in (("scripted", "low"), ("big", "high"), ("large", "high")):
        prompt = (await api.post("/../render", input="Hi", model=name))["text"]
        assert f"Reasoning: {effort}" in prompt
        assert ("You are big." in prompt) == (effort == "high")
    listed = [model["id"] for model in (await api.get("/models"))["data"]]
    assert listed == ["scripted", "big", "large"]


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("big", "must be NAME=MODEL"),
        ("big=tiny contxt=5", "Did you mean context"),
        ("big=tiny context=no", "big: context must be a whole number"),
        ("big=tiny context=5 context=6", "is set twice"),
        ("big=tiny engine_key=sk-1", "Did you mean engine_key_file"),
        ("big=tiny port=80", "port is no setting of a model"),
    ],
)
def test_a_wrong_row_is_a_sentence(row: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        read_configuration({"models": [row]}, {})


def test_two_models_of_one_name_are_refused() -> None:
    with pytest.raises(SettingsError, match="Two models have the name 'scripted'"):
        Api(one("1"), models={"scripted": one("2")})


def test_a_configuration_file_has_a_table_for_each_model(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-of-big\n")
    file = tmp_path / "server.toml"
    file.write_text(
        f"""
port = 9000
[models.big]
model = "vllm:http://gpu:8000"
served_model_name = ["large", "the large one"]
guide_arguments = false
engine_key_file = "{key}"
[models.small]
model = "tiny"
"""
    )
    by_model = read_configuration({"config": str(file)}, {}).settings.by_model
    assert [*by_model] == ["big", "small"]
    big = by_model["big"]
    assert (big.model, big.port, big.guide_arguments) == ("vllm:http://gpu:8000", 9000, False)
    assert (big.served_model_name, big.engine_key) == (("large", "the large one"), "sk-of-big")


async def test_a_key_may_be_limited_to_models(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("sk-all\nsk-big models=big\nsk-none models=none\n")
    api = api_of(Settings(api_key_file=str(file)), first="I am the first.", big="I am big.")

    async def status(key: str, path: str, **body: Any) -> Any:
        headers = {"authorization": f"Bearer {key}"}
        answer = await api.client.request("POST" if body else "GET", path, json=body or None, headers=headers)
        return answer.status_code, answer.json()

    for key, names in (("sk-all", ["scripted", "big"]), ("sk-big", ["big"]), ("sk-none", [])):
        assert [model["id"] for model in (await status(key, "/models"))[1]["data"]] == names
    assert text_of((await status("sk-big", "/responses", input="Hi"))[1]) == "I am big."
    for path, body in {**BODIES, "/responses/input_tokens": {"input": "Hi"}}.items():
        code, answer = await status("sk-big", path, model="scripted", **body)
        assert code == 403
        assert "may not use the model 'scripted'. Choose one of big" in str(answer)
        assert (await status("sk-none", path, **body))[0] == 403
    assert (await status("sk-big", "/models/scripted"))[0] == 403


async def test_a_model_is_listed_with_the_tools_that_the_key_may_declare(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("sk-all\nsk-python tools=python\n")
    tools = {"browser": f"local:{tmp_path}", "python": "unsafe-local"}
    api = api_of(Settings(api_key_file=str(tmp_path / "keys"), **tools), first="1")

    async def listed(key: str) -> Any:
        models = await api.client.get("/models", headers={"authorization": f"Bearer {key}"})
        return models.json()["data"][0]["tools"]

    assert await listed("sk-all") is None  # they are not made yet
    wanted = {"input": "Hi", "tools": [{"type": "web_search"}]}
    await api.client.post("/responses", json=wanted, headers={"authorization": "Bearer sk-all"})
    programs = "programmatic_tool_calling"
    assert await listed("sk-all") == ["shell", programs, "web_search", "file_search", "code_interpreter"]
    assert await listed("sk-python") == ["shell", programs, "code_interpreter"]


def test_a_key_for_a_model_that_is_not_served_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("sk-all\nsk-big models=bog\n")
    why = "line 2: models must be all, none, or a list out of scripted, big"
    with pytest.raises(SettingsError, match=why):
        api_of(Settings(api_key_file=str(file)), first="1", big="2")


class Broken(ScriptedEngine):
    sound = False

    async def check(self) -> None:
        if not self.sound:
            raise EngineFailed("Its card is gone.")


async def test_a_broken_model_leaves_the_others() -> None:
    broken = Broken(parse_script({"turns": [FINAL.format("I am big.")], "loop": True}, VOCABULARY))
    api = Api(one("I am the first."), models={"big": broken})
    health = api.app.state.health
    await health.look()
    whole = (await api.client.get("http://test/health")).json()
    assert (whole["status"], whole["models"]["big"]["status"]) == ("ok", "failing")
    assert (await api.client.get("http://test/ready")).status_code == 200
    assert text_of(await api.create()) == "I am the first."
    assert (await api.refused("/responses", input="Hi", model="big"))["status"] == 503
    states = {model["id"]: model["state"] for model in (await api.get("/models"))["data"]}
    assert states == {"scripted": "loaded", "big": "failed"}
    broken.sound = True
    await health.look()
    assert text_of(await api.create(model="big")) == "I am big."


async def test_figures_have_a_label_for_the_model() -> None:
    api = api_of(Settings(metrics_names="both"), first="I am the first.", big="I am big, and speak longer.")
    for name in ("scripted", "big", "big"):
        await api.create(model=name)
    figures = await scraped(api.client)
    assert figures.own("turns_total", api="responses", status="completed", model="big") == 2
    assert figures.own("turns_total", api="responses", status="completed", model="scripted") == 1
    assert figures.value("vllm:request_success_total", model_name="big", finished_reason="stop") == 2
    written = partial(figures.own, "output_tokens_total", api="responses")
    assert written(model="big") > written(model="scripted") > 0


def test_the_command_line_names_further_models(tmp_path: Path) -> None:
    scripts = []
    for text in ("first", "second"):
        (tmp_path / text).mkdir()
        scripts.append(script(tmp_path / text, FINAL.format(text)))
    words = (f"small={scripts[0]}", f"big={scripts[1]}", "--models", f"other={scripts[1]} context=9000")
    with process_serving(*words) as served, httpx.Client(base_url=served.api, timeout=30) as client:
        listed = {model["id"]: model["context_length"] for model in client.get("/models").json()["data"]}
        assert [*listed] == ["scripted", "small", "big", "other"]
        assert listed["other"] == 9000
        for name, said in (("small", "first"), ("big", "second"), ("other", "second")):
            answer = client.post("/responses", json={"model": name, "input": "Hi"}).json()
            assert (text_of(answer), answer["model"]) == (said, name)


def test_models_are_loaded_when_they_are_needed(tmp_path: Path) -> None:
    folders = [write_random_checkpoint(tmp_path / name, SMALLEST, 1) for name in ("first", "second")]
    words = (str(folders[0]), f"big={folders[1]}", "--models-max", "1", "--kv-memory", "4MiB")
    with process_serving(*words) as served, httpx.Client(base_url=served.api, timeout=60) as client:

        def states() -> list[str]:
            return [model["state"] for model in client.get("/models").json()["data"]]

        assert states() == ["unloaded", "unloaded"]
        body = {"input": "Hi", "max_output_tokens": 20}
        for name, then in (("first", ["loaded", "unloaded"]), ("big", ["unloaded", "loaded"])):
            answer = client.post("/responses", json={"model": name, **body}).json()
            assert (answer["model"], states()) == (name, then)
        root = served.api.removesuffix("/v1")
        assert client.post(f"{root}/models/load", json={"model": "first"}).json() == {"success": True}
        assert states() == ["loaded", "unloaded"]
        shown = run("models", "unload", "first", "--url", root).stdout
        rows = [line.split()[:2] for line in shown.splitlines()[1:]]
        assert rows == [["first", "unloaded"], ["big", "unloaded"]]
        unknown = client.post(f"{root}/models/load", json={"model": "none"})
        assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")


async def test_a_model_that_stays_loaded_cannot_be_unloaded() -> None:
    refused = await Api(one("1")).client.post("http://test/models/unload", json={"model": "scripted"})
    assert refused.status_code == 400
    assert "--models-max or --idle-unload" in refused.json()["error"]["message"]


async def test_a_stream_shows_life_while_its_model_is_loaded() -> None:
    def load() -> ScriptedEngine:
        time.sleep(0.5)
        return one("Here I am.")

    slow = Pool().add(one("").info, load)
    api = Api(slow, Settings(keep_alive=0.05))
    body = {"input": "Hi", "stream": True}
    both = await asyncio.gather(*(api.client.post("/responses", json=body) for _ in range(2)))
    for answer in both:
        kinds = [event["type"] for event in events_in(answer.text)]
        assert kinds[:4] == ["response.created", *["response.in_progress"] * 3], "the second and later ones"
        assert "Here I am." in answer.text


async def test_a_model_has_its_own_tools(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("sk-all\nsk-none tools=none\n")
    own = "small=scripted:x tools=mcp"
    web = {"browser": f"local:{tmp_path}", "python": "off"}
    settings = Settings(models=(own,), api_key_file=str(tmp_path / "keys"), **web)
    api = api_of(settings, first="I am the first.", small="I am small.")

    async def answer(model: str, key: str) -> httpx.Response:
        auth = {"Authorization": f"Bearer {key}"}
        web = {"input": "Hi", "model": model, "tools": [{"type": "web_search"}]}
        return await api.client.post("/responses", json=web, headers=auth)

    assert (await answer("scripted", "sk-all")).status_code == 200
    refused = (await answer("small", "sk-all")).json()["error"]
    assert (refused["code"], refused["param"]) == ("tool_not_allowed", "tools")
    assert "The model 'small' may not use the tool browser. Leave it out" in refused["message"]
    assert "This API key may not use" in (await answer("scripted", "sk-none")).json()["error"]["message"]
    listed = (await api.client.get("/models", headers={"Authorization": "Bearer sk-all"})).json()["data"]
    tools = {model["id"]: model["tools"] for model in listed}
    assert tools == {"scripted": ["web_search", "file_search"], "small": []}
    with pytest.raises(SettingsError, match=r"The tools of the model small must be all, none, .* not 'brow'"):
        api_of(Settings(models=("small=scripted:x tools=brow",)), first="", small="")
