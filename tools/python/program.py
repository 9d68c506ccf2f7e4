"""Programs that call the client's functions, each in a cell of a conversation's Python.

Takes the JSON of a call: the program, and the calls of its earlier runs with their outputs. Returns the
source of a cell that runs it, and turns the cell's output into a `ToolOutput`: what the program printed,
or, if it waits, `details` with the calls. A program that waits is ended. It runs again from its beginning
once its calls have outputs, and gets each for the same name and arguments.
"""

from collections.abc import Mapping
from typing import Any

from tools.python.shell import read_call, unmarked
from tools.tool import WAITS, Declaration, Function, ToolOutput

FUNCTION = "run"
_MOST_CALLS = 500  # of a program
_MOST_CHARACTERS = 20_000  # of what it prints, about 5,000 tokens
_PIECE = 100_000  # characters of a line: the kernel's messages are cut at more
PRINTED = 4_000_000
DECLARATION = Declaration(
    "program",
    "Runs a Python program that calls the user's functions, and returns what it prints. Use it where several "
    "calls follow from each other, or where much of their outputs is not needed. "
    "`await functions.NAME(key=value)` calls a function and returns its output, parsed if it is JSON; make "
    "calls that do not depend on each other with asyncio.gather. Print what you need to know. A program may "
    "run again from its beginning between calls: it should do nothing else that lasts. The functions:",
    (
        Function(
            FUNCTION,
            "Run a program.",
            {
                "type": "object",
                "properties": {"code": {"type": "string", "description": "Python, with await at any place."}},
                "required": ["code"],
                "additionalProperties": False,
            },
        ),
    ),
)

# Runs inside the box, in the kernel's running event loop.
_PROGRAM = """
import ast, asyncio, base64, contextlib, io, json, traceback

class Functions:
    def __init__(self):
        self._outputs, self._waiting = list(OUTPUTS), []

    def __getattr__(self, name):
        return self[name]

    def __getitem__(self, name):
        if name not in NAMES:
            raise AttributeError(f"There is no function {name!r}. There are: {', '.join(NAMES)}.")
        async def call(*given, **arguments):
            if len(given) > 1 or given and (arguments or not isinstance(given[0], dict)):
                raise TypeError(f"Call functions.{name} with keywords.")
            text = json.dumps(given[0] if given else arguments)
            for at, (called, sent, output) in enumerate(self._outputs):
                if called == name and json.loads(sent) == json.loads(text):
                    del self._outputs[at]
                    try:
                        return json.loads(output)
                    except ValueError:
                        return output
            self._waiting.append({"name": name, "arguments": text})
            await asyncio.Future()
        return call

async def settled(task, functions):
    \"\"\"Returns once the program has ended, or does nothing but wait for calls.\"\"\"
    quiet = seen = 0
    while not task.done() and quiet < 6:
        await asyncio.wait({task}, timeout=0.005)
        quiet = quiet + 1 if 0 < len(functions._waiting) == seen else 0
        seen = len(functions._waiting)

async def program():
    others = asyncio.all_tasks()
    functions, printed = Functions(), io.StringIO()
    space = {"functions": functions, "asyncio": asyncio, "json": json, "__name__": "__main__"}
    async def body():
        code = compile(CODE, "<program>", "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        made = eval(code, space)
        if made is not None:
            await made
    failed = False
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        task = asyncio.ensure_future(body())
        try:
            await settled(task, functions)
            if task.done():
                task.result()
        except Exception as error:
            failed = True
            frames = traceback.extract_tb(error.__traceback__)
            own = [frame for frame in frames if frame.filename == "<program>"]
            printed.write("".join([*traceback.format_list(own), *traceback.format_exception_only(error)]))
        finally:
            for left in asyncio.all_tasks() - others:
                left.cancel()
    text = printed.getvalue()
    if len(text) > MOST:
        text = text[:MOST] + "\\n[the rest was cut]"
    waiting = functions._waiting if not task.done() or task.cancelled() else []
    found = json.dumps({"printed": text, "failed": failed, "calls": waiting})
    done = base64.b64encode(found.encode()).decode()
    for start in range(0, len(done), PIECE):
        print("\\n" + MARK + done[start:start + PIECE], flush=True)

"""
_MARK = "program:"


def cell(arguments: str, options: Mapping[str, Any]) -> str:
    """The source that runs a call's program. Raises ValueError with a sentence for the model."""
    call = read_call(arguments)
    if not isinstance(call.get("code"), str):
        raise ValueError('Send JSON such as {"code": "print(await functions.name(key=1))"}.')
    calls = call["calls"] if isinstance(call.get("calls"), list) else []
    keys = ("name", "arguments", "output")
    rows = [tuple(each.get(key) for key in keys) for each in calls if isinstance(each, dict)]
    if len(calls) > _MOST_CALLS:
        raise ValueError(f"A program may make {_MOST_CALLS} calls at most. It was ended.")
    values = {
        "CODE": call["code"],
        "NAMES": tuple(options.get("names", ())),
        "OUTPUTS": [row for row in rows if all(isinstance(value, str) for value in row)],
        "MARK": _MARK,
        "MOST": _MOST_CHARACTERS,
        "PIECE": _PIECE,
    }
    return f"_space = {values!r}\nexec({_PROGRAM!r}, _space)\nawait _space.pop('program')()"


def answered(ran: ToolOutput) -> ToolOutput:
    """What the model and the item show of a cell that `cell` wrote."""
    found, notes = unmarked(ran.text, _MARK)
    if not isinstance(found, dict):
        return ToolOutput(ran.text, failed=True)
    if found["calls"]:
        return ToolOutput("", details={WAITS: found["calls"]})
    text = "\n".join(filter(None, (found["printed"].rstrip("\n"), notes)))
    return ToolOutput(text or "[The program printed nothing.]", bool(found["failed"]))
