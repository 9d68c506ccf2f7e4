"""Binds a turn to the form that its request requires: by a grammar for the engine, or by a check afterwards.

An engine that enforces grammars gets one for every turn, so that headers are always legal. One that takes
them as text gets one too, and the finished turn is checked for what such a text leaves free. For all others
there is only the check. A form that cannot be enforced is a 400 that names the schema's keyword and place;
so is one whose schemas and grammars together take too long. Compiled grammars are kept for their owner alone:
what another's took shows nobody what it sends.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache, partial

from gpt_oss_server.constraints.grammar import (
    ANY_OBJECT,
    Body,
    Callee,
    JsonBody,
    TextBody,
    TurnShape,
    plain_grammar,
    turn_grammar,
)
from gpt_oss_server.constraints.guide import Guides
from gpt_oss_server.constraints.json_grammar import as_far_as_enforceable, enforceable
from gpt_oss_server.constraints.matcher import (
    CompiledGrammar,
    GrammarError,
    Grammars,
    GrammarsMissing,
    grammars_of,
)
from gpt_oss_server.constraints.schema_support import SchemaRefused
from gpt_oss_server.constraints.spelled_turn import SpelledTurn, spelled_turn
from gpt_oss_server.constraints.text_grammar import GrammarRefused, text_grammar
from gpt_oss_server.constraints.turn_check import TurnCheck
from gpt_oss_server.constraints.wanted import Schema, TextGrammar, Wanted
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable, UnsupportedGrammar, UnsupportedSchema
from gpt_oss_server.harmony.encoding import Encoding
from inference.engine import EngineInfo
from inference.grammar import Grammar, Notation

_log = logging.getLogger(__name__)
_KEPT_GRAMMARS = 256
_MOST_SECONDS = 10.0  # of processor time, for the schemas and grammars of one request
_REASONING, _PREAMBLES = ("analysis",), ("commentary",)
_EITHER = ("analysis", "commentary")  # the channels on which the model calls hosted tools
_PARTS = ("headers", "calls", "schemas", "grammars")  # of a turn's form
_Compile = Callable[[TurnShape], CompiledGrammar | SpelledTurn]


@dataclass(frozen=True, slots=True)
class Binding:
    """The grammars of a turn's generations, and the check of the whole turn."""

    grammar: Grammar | None = None
    later: Grammar | None = None  # after a hosted tool ran: the required call has been made
    check: TurnCheck | None = None
    # The same two grammars once the budget for reasoning is spent.
    unreasoned: Grammar | None = None
    unreasoned_later: Grammar | None = None
    begun: Grammar | None = None  # the first one, after the tokens with which the request begins the turn

    def at(self, *, called: bool, reasons: bool) -> Grammar | None:
        if reasons:
            return self.later if called else self.grammar
        return self.unreasoned_later if called else self.unreasoned


def enforced(info: EngineInfo) -> dict[str, str]:
    """How an engine is held to each part of a turn's form: while it samples, by a check, or both."""
    sampling, both, check = "sampling", "sampling and check", "check"
    if info.enforces_grammar:
        return dict.fromkeys(_PARTS, sampling)
    if info.notation is None:
        return {"headers": "none", **dict.fromkeys(_PARTS[1:], check)}
    return {"headers": sampling, "calls": sampling, "schemas": both, "grammars": both}


def make_ready(encoding: Encoding, *, after: float = 0.0) -> threading.Thread:
    """Prepares, on a thread of its own and some seconds later, what the first grammar would wait for."""
    thread = threading.Timer(after, _make_ready, (encoding,))
    thread.name, thread.daemon = "grammars", True
    thread.start()
    return thread


def _make_ready(encoding: Encoding) -> None:
    try:
        grammars_of(encoding)
    except GrammarsMissing as error:
        _warn(str(error))


@cache  # the command line and the application both make them ready
def _warn(missing: str) -> None:
    _log.warning("Headers are not constrained to their grammar, and schemas are refused. %s", missing)


def bind(
    wanted: Wanted,
    encoding: Encoding,
    *,
    owner: str = "",
    enforces: bool,
    guides: bool = False,
    notation: Notation | None = None,
) -> Binding:
    """Compiles the binding. Too slow for the event loop: a second the first time, then milliseconds.

    `notation` is that of an engine which takes grammars as text. With `guides`, and an engine that takes
    grammars in any way, `wanted.guides` apply.
    """
    if not wanted.binds and not enforces and notation is None:
        return Binding()
    answer: Body = None
    bodies: dict[str, JsonBody | TextBody] = {}
    grammars: Grammars | None = None
    try:
        grammars = grammars_of(encoding)
    except GrammarsMissing as error:
        if wanted.needs_grammars:
            raise ToolNotAvailable(str(error), param=wanted.param) from None
    else:
        until = time.thread_time() + _MOST_SECONDS
        answer = None if wanted.answer is None else _form(grammars, wanted.answer)
        for recipient, form in wanted.forms.items():
            if time.thread_time() > until:
                why = f"The request's schemas and grammars take more than {_MOST_SECONDS:g} seconds to read."
                raise UnsupportedSchema(f"{why} Send fewer, or smaller ones.", param=wanted.param)
            bodies[recipient] = _form(grammars, form)
    callees = _callees(wanted, bodies)
    if wanted.must_call and not callees:
        raise InvalidRequest("A call is required, but no tool can be called.", param="tool_choice")
    guided: Sequence[Callee] = callees
    if guides and grammars is not None and (enforces or notation is not None):
        guided = _guided(grammars, wanted, callees)
    if enforces and grammars is not None:
        return _compiled(partial(_compile, owner, grammars), wanted, answer, callees, guided)
    bound = Binding()
    if notation is not None:
        bound = _bound(wanted, answer, guided, partial(_spelled, wanted, encoding))
    if not wanted.binds:
        return bound
    check = TurnCheck(grammars, answer, bodies, wanted.must_call, wanted.only)
    return replace(bound, check=check)


def bind_plain(wanted: Wanted, encoding: Encoding, *, owner: str = "") -> Grammar:
    """Compiles the grammar of a plain completion, for an engine that enforces it. Slow, like `bind`."""
    try:
        grammars = grammars_of(encoding)
    except GrammarsMissing as error:
        raise ToolNotAvailable(str(error), param=wanted.param) from None
    assert wanted.answer is not None, "nothing else of a plain completion is bound"
    try:
        return _compile(owner, grammars, plain_grammar(_form(grammars, wanted.answer)))
    except GrammarError as error:
        raise _too_large(wanted, error) from None


def _compiled(
    compile_lark: Callable[[str], CompiledGrammar],
    wanted: Wanted,
    answer: Body,
    callees: Sequence[Callee],
    guided: Sequence[Callee],
) -> Binding:
    def compiled(shape: TurnShape) -> CompiledGrammar:
        return compile_lark(turn_grammar(shape))

    if guided != callees:
        try:
            return _bound(wanted, answer, guided, compiled)
        except GrammarError as error:  # a guide must not refuse a request
            _log.info("The schemas of all tools together are too large to guide their calls: %s", error)
    try:
        return _bound(wanted, answer, callees, compiled)
    except GrammarError as error:
        raise _too_large(wanted, error) from None


@lru_cache(_KEPT_GRAMMARS)
def _compile(owner: str, grammars: Grammars, lark: str) -> CompiledGrammar:
    """A cache, because agents send the same tools again and again."""
    return grammars.compile(lark)


def _spelled(wanted: Wanted, encoding: Encoding, shape: TurnShape) -> SpelledTurn:
    """A turn is usual if it may have all kinds of messages, and the request requires no form of them."""
    is_usual = not wanted.binds and tuple(shape.asides) == (*_REASONING, *_PREAMBLES)
    return spelled_turn(shape, encoding, is_usual=is_usual)


def _too_large(wanted: Wanted, error: GrammarError) -> UnsupportedSchema:
    problem = f"The request's schemas and grammars are too large to be enforced together: {error}."
    return UnsupportedSchema(problem, param=wanted.param)


def _bound(wanted: Wanted, answer: Body, callees: Sequence[Callee], compiled: _Compile) -> Binding:
    """Raises `GrammarError` if all of it together is too large."""
    # A turn whose whole output has a form has no place for preambles.
    preambles = () if wanted.answers_only or (answer is not None and not callees) else _PREAMBLES
    asides = () if wanted.answers_only else (*_REASONING, *preambles)
    may_answer = not wanted.must_call
    first = TurnShape(callees, answer, may_answer, asides, wanted.parallel)
    later = replace(first, may_answer=True)
    bound = Binding(compiled(first), compiled(later))
    if wanted.begun:
        bound = replace(bound, begun=_begun(compiled(first), wanted))
    if not wanted.bounds_reasoning:
        return bound
    unreasoned, unreasoned_later = (compiled(replace(shape, asides=preambles)) for shape in (first, later))
    return replace(bound, unreasoned=unreasoned, unreasoned_later=unreasoned_later)


def _begun(grammar: CompiledGrammar | SpelledTurn, wanted: Wanted) -> Grammar:
    try:
        return grammar.after(wanted.begun)
    except GrammarError:
        problem = "The start of the answer does not fit the form that the request requires of the answer."
        advice = "Change the start, or leave out the form."
        raise InvalidRequest(f"{problem} {advice}", param=wanted.begun_param) from None


def _form(grammars: Grammars, form: Schema | TextGrammar) -> JsonBody | TextBody:
    try:
        if isinstance(form, TextGrammar):
            return TextBody(text_grammar(grammars, form.syntax, form.definition))
        return JsonBody((enforceable if form.strict else as_far_as_enforceable)(grammars, form.given))
    except SchemaRefused as refused:
        place = f" at `{refused.at}`" if refused.at else ""
        problem = f"`{form.param}`: the schema cannot be enforced{place}: {refused}."
        raise UnsupportedSchema(problem, param=form.param) from None
    except GrammarRefused as refused:
        problem = f"`{form.param}`: the grammar cannot be enforced: {refused}."
        raise UnsupportedGrammar(problem, param=form.param) from None


def _callees(wanted: Wanted, bodies: Mapping[str, JsonBody | TextBody]) -> list[Callee]:
    """The recipients that the turn may call."""
    callees = []
    for call in wanted.calls:
        body = bodies.get(call.recipient, None if call.raw else ANY_OBJECT)
        callees.append(Callee(call.recipient, body, types=("code", "text") if call.raw else ("json",)))
    for tool in wanted.declarations:
        names = [f"{tool.namespace}.{function.name}" for function in tool.functions]
        callees += [Callee(name, ANY_OBJECT, _EITHER, ("code", "json")) for name in names]
        if not names:
            callees.append(Callee(tool.namespace, None, _EITHER, ("code", "json")))
    return [callee for callee in callees if wanted.only is None or callee.recipient in wanted.only]


def _guided(grammars: Grammars, wanted: Wanted, callees: Sequence[Callee]) -> list[Callee]:
    """The callees, with a guide for each whose body may be any object so far."""
    guides = Guides(grammars)
    return [
        replace(callee, body=guides.of(wanted.guides[callee.recipient]))
        if callee.body is ANY_OBJECT and callee.recipient in wanted.guides
        else callee
        for callee in callees
    ]
