"""The server's grammar for a generation, for a conversation of the recipe.

The server samples every turn under a grammar: headers name only declared recipients, and the bodies of strict
functions, and answers with a schema, fit theirs.
"""

from __future__ import annotations

from gpt_oss_server.constraints.binding import bind
from gpt_oss_server.constraints.wanted import ClientCall, Schema, Wanted
from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.render import builtin_namespace
from inference.grammar import Grammar
from recipe.text.talk import Builtin, Talk
from tools.tool import Declaration, Function


def grammar_of(talk: Talk) -> Grammar:
    """The grammar of a request whose functions are all strict."""
    calls = [
        ClientCall(f"functions.{tool.name}", Schema(tool.parameters or {"type": "object"}, "tools"))
        for tool in talk.tools
    ]
    answer = Schema(talk.formats[0].schema, "text.format") if talk.formats else None
    declarations = [_declared(name) for name in talk.builtin]
    wanted = Wanted(calls=calls, declarations=declarations, answer=answer)
    grammar = bind(wanted, load_encoding(), enforces=True).grammar
    assert grammar is not None
    return grammar


def _declared(name: Builtin) -> Declaration:
    namespace = builtin_namespace(load_encoding(), name)
    return Declaration(namespace.name, None, tuple(Function(tool.name) for tool in namespace.tools))
