"""The chat outside of a terminal: questions, piped lines, its commands, tools, a running server."""

import json
import os
import re
import signal
from pathlib import Path

import httpx
import pytest

from gpt_oss_server.cli.chat.remote import base_url
from gpt_oss_server.cli.terminal.console import CommandLineError
from tests.doubles.commands import ANSWER, done, final, run, script, shown, terminal
from tests.doubles.ops.certificates import write_certificate
from tests.doubles.server_process import serving
from tests.doubles.waiting import wait_until

REMEMBERS = final("I remember.", when=r"first line[\s\S]*second line")
CALL = "<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"


def talk(*words: str, stdin: str = "", **options: object) -> str:
    ended = run("chat", *words, stdin=stdin, **options)  # type: ignore[arg-type]
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def seeing(folder: Path, *messages: str) -> str:
    """A model that answers one of these messages with its place in the list, and any other with no."""
    prompt = r"<\|start\|>user<\|message\|>%s<\|end\|><\|start\|>assistant$"
    turns = [final(str(n), when=prompt % re.escape(message)) for n, message in enumerate(messages, 1)]
    return script(folder, *turns, final("no"))


def test_a_question_is_answered_and_the_command_ends(tmp_path: Path) -> None:
    model = seeing(tmp_path, "What is it?", "two\nlines", "Read:\n\ntwo\nlines")
    assert talk(model, "What is it?") == talk(model, "What", "is", "it?") == "1\n"
    assert talk(model, "-", stdin="two\nlines\n") == "2\n"
    assert talk(model, "Read:", stdin="two\nlines\n") == "3\n"


def test_a_question_that_fails_is_a_failure(tmp_path: Path) -> None:
    failed = run("chat", script(tmp_path, ANSWER), "--context", "100", "Hello " * 100)
    assert (failed.returncode, "context" in failed.stdout) == (1, True)


def test_piped_lines_are_turns_of_one_conversation(tmp_path: Path) -> None:
    model = script(tmp_path, REMEMBERS, ANSWER)
    output = talk("--model", model, stdin="first line\nsecond line\n", fresh=True)
    assert output == "| Easy.\nHello!\nI remember.\n"


@pytest.mark.parametrize("quoted", ['"""\na\n/new\nb\n"""\n', '"""a\n/new\nb"""\n', '"""\na\n/new\nb\n'])
def test_quotes_make_one_message_of_piped_lines(tmp_path: Path, quoted: str) -> None:
    assert talk("-m", seeing(tmp_path, "a\n/new\nb"), stdin=quoted) == "1\n"
    assert talk("-m", seeing(tmp_path, "a b"), stdin='"""a b"""\n') == "1\n"


@pytest.mark.parametrize("reading", ["utf-8:strict", "utf-8:surrogateescape"])
def test_a_byte_that_is_not_utf8_spoils_nothing_else(tmp_path: Path, reading: str) -> None:
    words = ("chat", "--no-reasoning", "--instructions", "caf\udce9", "--model", script(tmp_path, ANSWER))
    strange = {"PYTHONIOENCODING": reading}
    chat = run(*words, stdin="hi\ncafé\nhello\n", env=strange, encoding="latin-1")
    assert (chat.returncode, chat.stderr, chat.stdout) == (0, "", "Hello!\n" * 3)


def test_commands_of_the_chat_are_obeyed(tmp_path: Path) -> None:
    lines = "first line\n/new\nsecond line\n/effort high\nthird\n/effort huge\n/help\n/quit\nnever written\n"
    model = script(tmp_path, REMEMBERS, final("High.", when="Reasoning: high"), ANSWER)
    output = talk("--no-reasoning", "--model", model, stdin=lines)
    assert "I remember." not in output
    assert output.startswith(
        "Hello!\n[a new conversation]\nHello!\n[effort: high]\nHigh.\n[/effort takes one of none, minimal"
    )
    assert "/quit, Ctrl-D" in output


def test_a_file_of_the_user_is_replaced_only_if_the_user_agrees(tmp_path: Path) -> None:
    kept, replaced, own = (tmp_path / name for name in ("kept.md", "replaced.md", "own.md"))
    kept.write_text("mine")
    replaced.write_text("mine")
    lines = f"hi\n/save {kept}\nn\n/save {replaced}\ny\n/save {own}\n/save {own}\n"
    output = talk("-m", script(tmp_path, ANSWER), stdin=lines)
    assert kept.read_text() == "mine"
    assert replaced.read_text() == own.read_text() == "**You:** hi\n\n> Easy.\n\n**Model:** Hello!\n"
    assert "kept.md exists. Replace it? [y/N] \n[not saved]\n" in output
    assert "own.md exists" not in output, "it is this chat's own"


def test_what_happened_can_be_shown_and_saved(tmp_path: Path) -> None:
    saved = tmp_path / "talk.json"
    commands = f"/stats\nhi\n/stats\n/tools\n/save {saved}\n/save\n/save /no/x\n"
    model = script(tmp_path, ANSWER)
    output = talk("-p", "--python", "unsafe-local", "-m", model, stdin=commands)
    assert output.startswith("there is no answer yet\n| Easy.\nHello!\nprompt ")
    stats = r"\nprompt    \d+ tokens, 0 of them from the cache\noutput    \d+ tokens, [1-9] of them reasoning"
    assert re.search(stats, output)
    assert "code_interpreter\n" in output
    assert "[/save needs the name of a file]" in output
    assert "[not saved: No such file or directory]" in output
    [turn] = json.loads(saved.read_text())
    assert turn["input"][0]["content"] == "hi"
    assert turn["response"]["output"][-1]["content"][0]["text"] == "Hello!"


def test_a_call_of_a_function_is_refused_and_the_model_learns_of_it(tmp_path: Path) -> None:
    told = final("I see.", when=r"There is no function 'add' here")
    output = talk("--model", script(tmp_path, told, CALL.format("add", '{"a": 2}')), stdin="2?\n")
    assert output == 'calls add({"a": 2})\nI see.\n'


def test_a_model_that_runs_in_circles_is_stopped(tmp_path: Path) -> None:
    output = talk("--model", script(tmp_path, CALL.format("add", "{}")), stdin="go\n")
    assert output.endswith("[stopped after 100 calls; write anything to continue]\n")


def test_searches_are_shown(tmp_path: Path) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "fjord.md").write_text("# The fjord\n\nThe fjord is very deep.\n")
    arguments = {"search": '{"query":"fjord"}', "open": '{"cursor":0,"id":0}', "find": '{"pattern":"deep"}'}
    call = "<|channel|>analysis to=browser.{} code<|message|>{}<|call|>"
    calls = [call.format(*function) for function in arguments.items()]
    model = script(tmp_path, *calls, final("Deep."))
    output = talk("-b", "--browser", f"local:{documents}", "--model", model, stdin="how deep?\n")
    assert re.fullmatch(r"\[searches 'fjord'\]\n\[opens .*\n\[looks for 'deep' in .*\nDeep.\n", output)


def test_code_and_its_output_are_shown_and_the_kernel_ends_with_the_chat(tmp_path: Path) -> None:
    code = "import os; print(40 + 2); print(os.getpid())"
    model = script(tmp_path, f"<|channel|>analysis to=python code<|message|>{code}<|call|>", final("42."))
    lines = talk("-p", "--python", "unsafe-local", "--model", model, stdin="40+2?\n").splitlines()
    assert lines[:4] == ["[runs]", f"    {code}", "[gives]", "    42"]
    assert lines[5:] == ["42."]
    with pytest.raises(ProcessLookupError):
        os.kill(int(lines[4]), 0)


def written(text: str, kind: str = "output_text") -> dict[str, object]:
    return {"type": f"response.{kind}.delta", "delta": text}


def test_reasoning_is_quoted_without_colour_and_dimmed_with_it() -> None:
    reasoning = [written(text, "reasoning_text") for text in ("One", " two.\nThree.")]
    events = [*reasoning, done("reasoning"), written("Four."), done("message")]
    assert shown(*events) == "| One two.\n| Three.\nFour.\n"
    assert shown(*events, colour=True) == "\x1b[2mOne\x1b[0m\x1b[2m two.\nThree.\x1b[0m\nFour.\n"
    assert shown(*events, reasoning=False) == "Four.\n"


def test_calls_and_ends_are_shown() -> None:
    call = done("function_call", name="f", arguments='{"a": 1}')
    assert shown(written("Wait."), done("message"), call) == 'Wait.\ncalls f({"a": 1})\n'
    cut = {"type": "response.incomplete", "response": {"incomplete_details": {"reason": "max_output_tokens"}}}
    assert shown(written("So"), cut) == "So\n[cut short: max_output_tokens]\n"
    failed = {"type": "response.failed", "response": {"error": {"message": "It broke."}}}
    assert shown(failed) == "[failed: It broke.]\n"


def test_long_code_and_output_are_shortened_and_cannot_control_the_terminal() -> None:
    code = {"type": "response.code_interpreter_call_code.done", "code": "x = 1\n\x1b[2J"}
    logs = [{"type": "logs", "logs": "".join(f"{n}\n" for n in range(22))}, {"type": "image", "url": "data:"}]
    output = shown(code, done("code_interpreter_call", status="completed", outputs=logs))
    assert output.startswith("[runs]\n    x = 1\n    \\x1b[2J\n[gives]\n    0\n")
    assert output.endswith("    19\n    … and 3 more lines\n")
    assert shown(done("code_interpreter_call", status="completed", outputs=[])) == ""
    assert "…" in shown({**code, "code": "y" * 600})


def test_searches_are_named_by_their_action() -> None:
    failed = done("web_search_call", status="failed", action={"type": "search", "query": "fjord"})
    assert shown(failed) == "[searches 'fjord' (failed)]\n"
    opened = done("web_search_call", status="completed", action={"type": "open_page"})
    assert shown(opened) == "[opens a page]\n"


SLOW = final("word " * 5000, when="slow")


def test_a_conversation_with_a_server(tmp_path: Path) -> None:
    remembers = final("I remember.", when=r"first[\s\S]*second")
    with serving("--model", script(tmp_path, remembers, ANSWER)) as served:
        talk = run("chat", "--url", served.url, stdin="first\nsecond\n")
        assert (talk.returncode, talk.stdout, talk.stderr) == (0, "| Easy.\nHello!\nI remember.\n", "")
        one = run("chat", "--url", served.api, "--no-reasoning", "first")
        assert (one.returncode, one.stdout) == (0, "Hello!\n")
        wrong = run("chat", "--url", served.url, "-m", "openai/gpt-oss-20b", "first")
        assert wrong.returncode == 1
        assert "The model 'openai/gpt-oss-20b' is not served here. Served: scripted." in wrong.stdout


def test_ctrl_c_stops_the_server_s_answer_and_the_greeting_names_it(tmp_path: Path) -> None:
    model = script(tmp_path, SLOW, ANSWER, tokens_per_second=50)
    with serving("--model", model) as served, terminal("--url", served.url) as screen:
        screen.shows(rf"scripted, replays a script of 2 turn\(s\), at {served.api}\.[\s\S]*> ")
        screen.enter("slow", "word word")
        screen.press("\x03")
        screen.shows(r"\[stopped\]")
        wait_until(lambda: httpx.get(f"{served.url}/health").json()["counters"]["cancelled"])
        screen.enter("and now", r"Hello![\s\S]*> ")
        screen.quit()


def test_http_and_https_that_do_not_fit_are_distinguished_from_an_absent_server(tmp_path: Path) -> None:
    certificate, key = write_certificate(tmp_path, "server", hosts=("127.0.0.1",))
    flags = ("--model", script(tmp_path, ANSWER))
    with serving(*flags, "--tls-cert", certificate, "--tls-key", key) as served:
        address = served.url.rpartition("/")[2]
        unknown = run("chat", "--url", f"https://{address}", "hi")
        assert unknown.stderr.startswith(f"The certificate of https://{address}/v1 cannot be verified: ")
        assert "SSL_CERT_FILE" in unknown.stderr
        trusted = run("chat", "--url", f"https://{address}", "hi", env={"SSL_CERT_FILE": certificate})
        assert (trusted.returncode, trusted.stdout) == (0, "| Easy.\nHello!\n")
        plain = run("chat", "--url", f"http://{address}", "hi")
        assert plain.stderr.endswith(f"If it speaks HTTPS: --url https://{address}/v1.\n")
    with serving(*flags) as served:
        secure = run("chat", "--url", served.url.replace("http:", "https:"), "hi")
        assert secure.stderr.endswith(f"does not speak HTTPS. Try --url {served.url}/v1.\n")
    absent = run("chat", "--url", served.url, "hi")
    assert (absent.returncode, absent.stdout) == (1, "")
    assert absent.stderr.startswith(f"No server answers at {served.api}: ")
    assert "gpt-oss-server serve" in absent.stderr


def test_a_server_that_ends_during_an_answer_is_reported(tmp_path: Path) -> None:
    ended = r"\[(The server ended the connection|The server at \S+ cannot be reached)[\s\S]*> "
    model = script(tmp_path, SLOW, tokens_per_second=50)
    with serving("--model", model) as served, terminal("--url", served.url) as screen:
        screen.shows("> ")
        screen.enter("slow", "word word")
        served.process.send_signal(signal.SIGKILL)
        screen.shows(ended)


def test_an_address_is_taken_as_people_write_it() -> None:
    assert base_url("localhost:8000") == base_url("http://localhost:8000/") == "http://localhost:8000/v1"
    assert base_url("https://host/prefix/v1/") == "https://host/prefix/v1"
    for wrong in ("ftp://host", "http://"):
        with pytest.raises(CommandLineError, match="is no address of a server"):
            base_url(wrong)
