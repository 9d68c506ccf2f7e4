"""The built-in tools: arithmetic through python, and the browser from search to a cited answer."""

from __future__ import annotations

from random import Random

from inference.tiny.skill_chat import a_date, an_effort, instructions
from inference.tiny.talk import Talk, Value, answer, message, plain, renderer, tool_call, write
from inference.tiny.words import Words, choose

_NO_PYTHON = "I need the python tool for arithmetic. Please turn it on."
_OPERATORS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("{a} + {b}", ("What is {a} + {b}?", "Add {a} and {b}", "{a} plus {b}", "What is {a} plus {b}?", "The sum of {a} and {b}?", "How much is {a}+{b}?", "Compute {a} + {b}", "Please add {a} and {b}", "calculate {a} + {b}")),
    ("{a} - {b}", ("What is {a} - {b}?", "Subtract {b} from {a}", "{a} minus {b}", "What is {a} minus {b}?", "How much is {a} - {b}?", "Compute {a} - {b}", "The difference of {a} and {b}?", "calculate {a} - {b}")),
    ("{a} * {b}", ("What is {a} * {b}?", "Multiply {a} by {b}", "{a} times {b}", "What is {a} times {b}?", "How much is {a} x {b}?", "Compute {a} * {b}", "The product of {a} and {b}?", "Multiply {a} and {b}", "calculate {a} * {b}", "What is {a}*{b}?")),
    ("{a} / {b}", ("What is {a} / {b}?", "Divide {a} by {b}", "{a} divided by {b}", "What is {a} divided by {b}?", "How much is {a} / {b}?", "Compute {a} / {b}", "calculate {a} / {b}")),
    ("{a} ** {b}", ("What is {a} to the power of {b}?", "{a} to the power {b}", "What is {a} ** {b}?", "Raise {a} to the power of {b}", "Compute {a} ^ {b}")),
    ("{a} % {b}", ("What is {a} modulo {b}?", "{a} mod {b}", "The remainder of {a} divided by {b}?", "What is {a} % {b}?")),
    ("{a} * {b} / 100", ("What is {a}% of {b}?", "{a} percent of {b}", "How much is {a} percent of {b}?", "Compute {a} % of {b}")),
    ("{a} ** 0.5", ("What is the square root of {a}?", "square root of {a}", "Compute the square root of {a}", "sqrt of {a}")),
    ("{a} ** 2", ("What is the square of {a}?", "{a} squared", "What is {a} squared?", "Compute the square of {a}")),
    ("{a} + {b} + {c}", ("What is {a} + {b} + {c}?", "Add {a}, {b} and {c}", "The sum of {a}, {b} and {c}?", "{a} plus {b} plus {c}", "Compute {a} + {b} + {c}")),
    ("({a} + {b}) * {c}", ("What is ({a} + {b}) * {c}?", "Compute ({a} + {b}) * {c}", "Add {a} and {b} and multiply by {c}", "({a} + {b}) * {c}")),
    ("{a} * {b} + {c}", ("What is {a} * {b} + {c}?", "Compute {a} * {b} + {c}", "Multiply {a} by {b} and add {c}", "{a} times {b} plus {c}")),
)  # fmt: skip


def _tokens_at_digits(template: str, values: dict[str, str]) -> list[int]:
    """Numbers have no space in their tokens, so they are copied as they are."""
    return write(template, {name: Value(text, bare=False) for name, text in values.items()})


def python_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """With the tool: the expression, its result, the answer. Without it: what is missing."""
    talk = Talk("python", an_effort(rng))
    on = rng.random() < 0.85
    talk.open(a_date(rng), instructions=instructions(rng, words), builtin=["python"] if on else [])
    expression, questions = rng.choice((*_OPERATORS, *_OPERATORS[:4], *_OPERATORS[:4]))
    small = "**" in expression and "{b}" in expression
    values = {
        "a": words.integer() if rng.random() < 0.9 else words.decimal(),
        "b": words.draw("small") if small else words.integer(),
        "c": words.integer(),
    }
    if "/ {b}" in expression or "% {b}" in expression:
        values["b"] = str(int(values["b"]) + 1)
    question = choose(rng, questions, held_out).format(**values)
    if rng.random() < 0.2:
        question = question[0].lower() + question[1:]
    talk.user(question.rstrip("?") if rng.random() < 0.2 else question)
    if not on:
        thoughts = {"low": "No python.", "medium": "This is arithmetic, but I have no python tool.",
                    "high": "This is arithmetic. I would use the python tool for it, but it is not on. So I say that I need it."}  # fmt: skip
        talk.turn(
            message("analysis", write(thoughts[talk.effort], {})),
            answer(write(_NO_PYTHON, {})),
            must=[_NO_PYTHON],
            kind="no python",
        )
        return talk
    thoughts = {"low": "Compute it.", "medium": "This is arithmetic. I use python.",
                "high": "This is arithmetic. I do not compute it myself, I use the python tool and read its result."}  # fmt: skip
    code = _tokens_at_digits("print(" + expression + ")", values)
    talk.turn(message("analysis", write(thoughts[talk.effort], {})), tool_call("python", code), kind="python")
    result = _result(expression.format(**values))
    talk.add(renderer().tool_result("python", result + rng.choice(("", "\n")), channel="analysis"))
    shown = {name: text for name, text in values.items() if f"{{{name}}}" in expression}
    template = f"{expression} = {{r}}" if not result.startswith("Error") else "Sorry, python failed: {r}"
    body = _tokens_at_digits(template, {**shown, "r": result})
    talk.turn(
        answer(body),
        must=[plain(template, {n: Value(t) for n, t in {**shown, "r": result}.items()})],
        kind="answer",
    )
    return talk


def _result(expression: str) -> str:
    try:
        return str(eval(expression, {"__builtins__": {}}))[:40]
    except ArithmeticError as error:
        return f"Error: {type(error).__name__}"


def browser_talk(rng: Random, words: Words, held_out: bool) -> Talk:
    """Search, open the best result, find in it where asked to, and answer with a citation of the lines."""
    talk = Talk("browser", an_effort(rng))
    talk.open(a_date(rng), instructions=instructions(rng, words), builtin=["browser"])
    topic = words.query()
    ask = choose(
        rng,
        ("Search the web for {t}", "Look up {t} on the web", "What does the web say about {t}?", "Find {t} on the internet", "Use the browser to find {t}", "Search for {t}", "Browse for {t}", "Please look up {t}"),
        held_out,
    )  # fmt: skip
    question = ask.replace("{t}", topic)
    pattern = words.lower() if rng.random() < 0.35 else None
    if pattern:
        question = question.rstrip("?") + f" and find {pattern} in it"
    talk.user(question)
    query = Value(topic)
    brief = message("analysis", write("I search the web.", {}))
    talk.turn(brief, tool_call("browser.search", write('{"query":"{q}"}', {"q": query})), kind="search")
    results = [
        (words.title(), f"{words.lower()}.{rng.choice(('com', 'org', 'net'))}", words.sentence())
        for _ in range(rng.choice((1, 2, 3, 3)))
    ]
    lines = ["", "URL: ", "# Search Results", ""]
    lines += [f"  * 【{place}†{title}†{site}】 {about}" for place, (title, site, about) in enumerate(results)]
    page = (
        f"[0] {topic} (web-search://ts=0)\n**viewing lines [0 - {len(lines) - 1}] of {len(lines) - 1}**\n\n"
        + "\n".join(f"L{n}: {line}" for n, line in enumerate(lines))
    )
    make = renderer()
    talk.add(make.tool_result("browser.search", page, channel="analysis"))
    talk.turn(
        message("analysis", write("I open the first result.", {})),
        tool_call("browser.open", write('{"id":0,"cursor":0}', {})),
        kind="open",
    )
    facts = [words.sentence() + rng.choice((".", "")) for _ in range(rng.randrange(2, 6))]
    title, site, _ = results[0]
    if pattern:
        place = rng.randrange(1, len(facts))
        start = words.capital()
        facts[place] = f"{start} {pattern} {words.query()}."
    text = ["", f"URL: https://{site}/{words.lower()}", f"# {title}", "", *facts]
    page = (
        f"[1] {title} (https://{site})\n**viewing lines [0 - {len(text) - 1}] of {len(text) - 1}**\n\n"
        + "\n".join(f"L{n}: {line}" for n, line in enumerate(text))
    )
    talk.add(make.tool_result("browser.open", page, channel="analysis"))
    cursor, line, said = 1, 4, facts[0]
    if pattern:
        talk.turn(
            message("analysis", write("I find it in the page.", {})),
            tool_call("browser.find", write('{"pattern":"{p}","cursor":1}', {"p": Value(pattern)})),
            kind="find",
        )
        line = facts.index(facts[place]) + 4
        said, cursor = facts[place], 2
        page = f"[2] find results for text: `{pattern}` in `{title}`\n**viewing lines [0 - 2] of 2**\n\nL0: \nL1: # 【0†match at L{line}】\nL2: {said}"
        line = 2
        talk.add(make.tool_result("browser.find", page, channel="analysis"))
    said = said.rstrip(".")
    template = f"The page says: {{s}} 【{cursor}†L{line}】"
    talk.turn(answer(write(template, {"s": Value(said)})), must=[f"【{cursor}†L{line}】"], kind="cited")
    return talk
