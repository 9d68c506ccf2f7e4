"""The shell of a conversation's Python: commands in the same sandbox, with the same files and limits.

Takes the JSON of a call. Returns the source of a cell that runs its commands, and turns the cell's output
into a `ToolOutput` whose `details` are `{"output": [{"stdout", "stderr", "outcome"}, …]}`, one for each
command; its `text` is the same list as JSON.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any

from tools.tool import Declaration, Function, ToolOutput

FUNCTION = "exec"
_MOST_COMMANDS = 20
_MOST_CHARACTERS = 20_000  # of all outputs of a call, about 5,000 tokens
# Of what the cell prints: base64 of JSON, of which a character can take twelve.
PRINTED = 20 * _MOST_CHARACTERS

DECLARATION = Declaration(
    "shell",
    "Runs shell commands and returns what each wrote and its exit code. They begin in /mnt/data, whose files "
    "stay, and which python sees too.",
    (
        Function(
            FUNCTION,
            "Run commands, one after the other.",
            {
                "type": "object",
                "properties": {
                    "commands": {
                        "type": "array",
                        "items": {"type": "string"},
                        "minItems": 1,
                        "description": 'One or more lines for the shell, e.g. ["ls -l"].',
                    },
                    "timeout_ms": {"type": "integer", "description": "The most milliseconds each may take."},
                    "max_output_length": {
                        "type": "integer",
                        "description": "The most characters of output to return of each.",
                    },
                },
                "required": ["commands"],
                "additionalProperties": False,
            },
        ),
    ),
)

# Runs inside the box. What a command leaves running keeps its pipes open: nobody waits for it.
_PROGRAM = """
import base64, json, os, shutil, signal, subprocess, threading

SHELL = shutil.which("bash") or "/bin/sh"

def drained(pipe, kept):
    while chunk := pipe.read1(65536):
        kept.extend(chunk[:max(0, 4 * MOST - len(kept))])

def text(kept):
    found = kept.decode("utf-8", "replace")
    return found if len(found) <= MOST else found[:MOST] + "\\n[the rest was cut]"

stopped = False

def run(command):
    global stopped
    if stopped:
        return {"stdout": "", "stderr": "It was not run.", "outcome": {"type": "timeout"}}
    try:
        process = subprocess.Popen([SHELL, "-c", command], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, start_new_session=True)
    except (OSError, ValueError) as error:
        return {"stdout": "", "stderr": str(error), "outcome": {"type": "exit", "exit_code": 126}}
    pipes = [(process.stdout, bytearray()), (process.stderr, bytearray())]
    readers = [threading.Thread(target=drained, args=pair, daemon=True) for pair in pipes]
    for reader in readers:
        reader.start()
    try:
        outcome = {"type": "exit", "exit_code": process.wait(LIMIT)}
    except (subprocess.TimeoutExpired, KeyboardInterrupt) as error:
        stopped = isinstance(error, KeyboardInterrupt)  # the time of the whole call is over
        outcome = {"type": "timeout"}
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    for reader in readers:
        reader.join(0.5)
    out, err = (text(bytes(kept)) for _, kept in pipes)
    return {"stdout": out, "stderr": err, "outcome": outcome}

done = json.dumps([run(command) for command in COMMANDS])
print("\\n" + MARK + base64.b64encode(done.encode()).decode())
"""
_MARK = "shell:"


def cell(arguments: str, options: Mapping[str, Any]) -> str:
    """The source that runs a call's commands. Raises ValueError with a sentence for the model."""
    call = read_call(arguments)
    commands = call.get("commands")
    if not isinstance(commands, list) or not commands or not all(isinstance(each, str) for each in commands):
        raise ValueError('Send JSON such as {"commands": ["ls -l"]}.')
    if len(commands) > _MOST_COMMANDS:
        raise ValueError(f"Send at most {_MOST_COMMANDS} commands in a call.")
    share = _MOST_CHARACTERS // (2 * len(commands))
    names = {
        "COMMANDS": commands,
        "MARK": _MARK,
        "LIMIT": _positive(call.get("timeout_ms"), None) and call["timeout_ms"] / 1000,
        "MOST": min(share, _positive(call.get("max_output_length"), share)),
    }
    return f"exec({_PROGRAM!r}, {names!r})"


def read_call(arguments: str) -> dict[str, Any]:
    """The JSON object of a call, whose strings may have raw line breaks; an empty one for anything else."""
    try:
        call = json.loads(arguments, strict=False)
    except (ValueError, RecursionError):
        return {}
    return call if isinstance(call, dict) else {}


def _positive(value: Any, other: Any) -> Any:
    return value if type(value) is int and value > 0 else other


def unmarked(text: str, mark: str) -> tuple[Any, str]:
    """The JSON in base64 on the lines with this mark, None if none can be read; and the other lines."""
    lines = text.splitlines()
    notes = "\n".join(line for line in lines if line and not line.startswith(mark))
    printed = "".join(line.removeprefix(mark) for line in lines if line.startswith(mark))
    try:
        return json.loads(base64.b64decode(printed, validate=True)), notes
    except (binascii.Error, ValueError):
        return None, notes


def answered(ran: ToolOutput) -> ToolOutput:
    """What the model and the item show of a cell that `cell` wrote."""
    output, notes = unmarked(ran.text, _MARK)
    if output is None:
        late = "Timed out" in ran.text
        outcome = {"type": "timeout"} if late else {"type": "exit", "exit_code": 126}
        output, notes = [{"stdout": "", "stderr": ran.text, "outcome": outcome}], ""
    if notes:  # the kernel was restarted, or the commands were stopped
        output[-1]["stderr"] += f"{notes}\n"
    return ToolOutput(json.dumps(output, ensure_ascii=False), ran.failed, {"output": output})
