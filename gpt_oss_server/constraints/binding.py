"""Binds a turn to the form that its request requires: by a grammar for the engine, or by a check afterwards.

Takes the allowed calls, the form of the answer, and whether a call is required, in terms of no API. Returns a
`Binding`, or raises a 400 that names the schema's keyword and place. An engine that enforces grammars gets
one for every turn, so that headers are always legal; for other engines the finished turn is checked.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from typing import Any

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
from gpt_oss_server.constraints.text_grammar import GrammarRefused, text_grammar
from gpt_oss_server.constraints.turn_check import TurnCheck
from gpt_oss_server.constraints.wanted import Schema, TextGrammar, Wanted
from gpt_oss_server.errors import InvalidRequest, ToolNotAvailable, UnsupportedGrammar, UnsupportedSchema
from gpt_oss_server.harmony.encoding import Encoding
from inference.grammar import Grammar
from tools.tool import Declaration

_log = logging.getLogger(__name__)
_KEPT_GRAMMARS = 64
_REASONING, _PREAMBLES = ("analysis",), ("commentary",)


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


def make_ready(encoding: Encoding, *, after: float = 0.0) -> threading.Thread:
    """Prepares, on a thread of its own and some seconds later, what the first grammar would wait for."""
    thread = threading.Thread(target=_make_ready, args=(encoding, after), name="grammars", daemon=True)
    thread.start()
    return thread


def _make_ready(encoding: Encoding, after: float) -> None:
    time.sleep(after)
    try:
        grammars_of(encoding)
    except GrammarsMissing as error:
        _warn(str(error))


@cache  # the command line and the application both make them ready
def _warn(missing: str) -> None:
    _log.warning("Headers are not constrained to their grammar, and schemas are refused. %s", missing)


def bind(wanted: Wanted, encoding: Encoding, *, enforces: bool, guides: bool = False) -> Binding:
    """Compiles the binding. Too slow for the event loop: a second the first time, then milliseconds.

    With `guides`, and an engine that enforces grammars, `wanted.guides` apply.
    """
    if not wanted.binds and not enforces:
        return Binding()
    try:
        grammars = grammars_of(encoding)
    except GrammarsMissing as error:
        if not wanted.needs_grammars:
            return _checked_by_header(wanted)
        raise ToolNotAvailable(str(error), param=wanted.param) from None
    answer = None if wanted.answer is None else _form(grammars, wanted.answer)
    bodies = {recipient: _form(grammars, form) for recipient, form in wanted.forms.items()}
    callees = [c for c in _callees(wanted, bodies) if wanted.only is None or c.recipient in wanted.only]
    if wanted.must_call and not callees:
        raise InvalidRequest("A call is required, but no tool can be called.", param=wanted.choice_param)
    if not enforces:
        check = TurnCheck(grammars, answer, bodies, wanted.must_call, wanted.only, wanted.banned)
        return Binding(check=check)
    if guides and (guided := _guided(grammars, wanted, callees)) != callees:
        try:
            return _enforced(grammars, wanted, answer, guided)
        except GrammarError as error:  # a guide must not refuse a request
            _log.info("The schemas of all tools together are too large to guide their calls: %s", error)
    try:
        return _enforced(grammars, wanted, answer, callees)
    except GrammarError as error:
        raise _too_large(wanted, error) from None


def _too_large(wanted: Wanted, error: GrammarError) -> UnsupportedSchema:
    return UnsupportedSchema(
        f"The request's schemas and grammars are too large to be enforced together: {error}.",
        param=wanted.param,
    )


def _enforced(grammars: Grammars, wanted: Wanted, answer: Body, callees: Sequence[Callee]) -> Binding:
    """Raises `GrammarError` if all of it together is too large."""
    # A turn whose whole output has a form has no place for preambles.
    preambles = () if wanted.answers_only or (answer is not None and not callees) else _PREAMBLES
    asides = () if wanted.answers_only else (*_REASONING, *preambles)
    first = TurnShape(
        callees,
        answer,
        not wanted.must_call,
        asides=asides,
        parallel=wanted.parallel,
        banned=wanted.banned,
    )
    later = replace(first, may_answer=True)

    def compiled(shape: TurnShape, *, reasons: bool = True) -> CompiledGrammar:
        return _compile(grammars, turn_grammar(shape if reasons else replace(shape, asides=preambles)))

    bound = Binding(compiled(first), compiled(later))
    if wanted.begun:
        bound = replace(bound, begun=_begun(compiled(first), wanted))
    if not wanted.bounds_reasoning:
        return bound
    unreasoned = compiled(first, reasons=False), compiled(later, reasons=False)
    return replace(bound, unreasoned=unreasoned[0], unreasoned_later=unreasoned[1])


def bind_plain(wanted: Wanted, encoding: Encoding) -> Grammar:
    """Compiles the grammar of a plain completion, for an engine that enforces it. Slow, like `bind`."""
    try:
        grammars = grammars_of(encoding)
    except GrammarsMissing as error:
        raise ToolNotAvailable(str(error), param=wanted.param) from None
    body = None if wanted.answer is None else _form(grammars, wanted.answer)
    try:
        return _compile(grammars, plain_grammar(body, wanted.banned))
    except GrammarError as error:
        raise _too_large(wanted, error) from None


def _checked_by_header(wanted: Wanted) -> Binding:
    """The check of which tools the turn calls and of banned strings, which needs no grammars."""
    check = TurnCheck(None, None, {}, wanted.must_call, wanted.only, wanted.banned)
    return Binding(check=check) if wanted.binds else Binding()


def _guided(grammars: Grammars, wanted: Wanted, callees: Sequence[Callee]) -> list[Callee]:
    """The callees, with a guide for each whose body may be any object so far."""
    guides = Guides(grammars)
    return [
        replace(callee, body=guides.of(wanted.guides[callee.recipient]))
        if callee.body is ANY_OBJECT and callee.recipient in wanted.guides
        else callee
        for callee in callees
    ]


def _schema(grammars: Grammars, schema: Schema) -> dict[str, Any]:
    try:
        return (enforceable if schema.strict else as_far_as_enforceable)(grammars, schema.given)
    except SchemaRefused as refused:
        place = f" at `{refused.at}`" if refused.at else ""
        raise UnsupportedSchema(
            f"`{schema.param}`: the schema cannot be enforced{place}: {refused}.", param=schema.param
        ) from None


def _form(grammars: Grammars, form: Schema | TextGrammar) -> JsonBody | TextBody:
    if isinstance(form, Schema):
        return JsonBody(_schema(grammars, form))
    try:
        return TextBody(text_grammar(grammars, form.syntax, form.definition))
    except GrammarRefused as refused:
        raise UnsupportedGrammar(
            f"`{form.param}`: the grammar cannot be enforced: {refused}.", param=form.param
        ) from None


def _callees(wanted: Wanted, bodies: Mapping[str, JsonBody | TextBody]) -> list[Callee]:
    found = []
    for call in wanted.calls:
        body = bodies.get(call.recipient, None if call.raw else ANY_OBJECT)
        found.append(Callee(call.recipient, body, types=_TYPES_OF_TEXT if call.raw else ("json",)))
    for declaration in wanted.declarations:
        found += _tool_callees(declaration)
    return found


_TYPES_OF_TEXT = ("code", "text")
_BOTH = ("analysis", "commentary")  # the model calls hosted tools on either


def _tool_callees(declaration: Declaration) -> list[Callee]:
    if not declaration.functions:
        return [Callee(declaration.namespace, None, _BOTH, ("code", "json"))]
    return [
        Callee(f"{declaration.namespace}.{function.name}", ANY_OBJECT, _BOTH, ("code", "json"))
        for function in declaration.functions
    ]


def _begun(grammar: CompiledGrammar, wanted: Wanted) -> Grammar:
    try:
        return grammar.after(wanted.begun)
    except GrammarError:
        raise InvalidRequest(
            "The start of the answer does not fit the form that the request requires of the answer. Change "
            "the start, or leave out the form.",
            param=wanted.begun_param,
        ) from None


@lru_cache(_KEPT_GRAMMARS)
def _compile(grammars: Grammars, lark: str) -> CompiledGrammar:
    """A cache, because agents send the same tools again and again."""
    return grammars.compile(lark)
