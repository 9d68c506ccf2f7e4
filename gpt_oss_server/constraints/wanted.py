"""What a request requires of the form of a turn, in terms of no API and of no grammar."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gpt_oss_server.constraints.text_grammar import Syntax
from tools.tool import Declaration


@dataclass(frozen=True, slots=True)
class Schema:
    """A schema as the client sent it, and the parameter that held it."""

    given: Mapping[str, Any]
    param: str
    strict: bool = True  # False: what cannot be enforced is declared to the model, but not enforced


@dataclass(frozen=True, slots=True)
class TextGrammar:
    """A grammar of free text as the client sent it, and the parameter that held it."""

    syntax: Syntax
    definition: str
    param: str


@dataclass(frozen=True, slots=True)
class ClientCall:
    """A tool that the client runs: its recipient, and the form of the call's body."""

    recipient: str
    form: Schema | TextGrammar | None = None
    raw: bool = False  # the body is text rather than JSON


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a request requires of the form of a turn."""

    calls: Sequence[ClientCall] = ()  # to the client's tools
    declarations: Sequence[Declaration] = ()  # tools that run here
    # By recipient: schemas that guide the bodies of calls without binding them.
    guides: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    answer: Schema | TextGrammar | None = None
    must_call: bool = False
    only: frozenset[str] | None = None  # the only recipients that may be called; None: all; empty: no call
    parallel: bool = False  # several calls in one generation
    bounds_reasoning: bool = False  # limits reasoning to a number of tokens
    answers_only: bool = False  # one final message, without reasoning
    # The tokens with which the request begins the turn, and the parameter that held their text.
    begun: tuple[int, ...] = ()
    begun_param: str = ""

    @property
    def forms(self) -> dict[str, Schema | TextGrammar]:
        """The forms of the bodies of calls, by recipient."""
        return {call.recipient: call.form for call in self.calls if call.form is not None}

    @property
    def needs_grammars(self) -> bool:
        """Whether a form is required that only the grammars' library can check."""
        return bool(self.forms) or self.answer is not None

    @property
    def binds(self) -> bool:
        """Whether the request requires anything beyond legal headers."""
        return self.needs_grammars or self.must_call or self.only is not None

    @property
    def param(self) -> str:
        """The parameter that an error about all of it names."""
        if self.answer is not None:
            return self.answer.param
        if self.forms:
            return next(iter(self.forms.values())).param
        return "tool_choice" if self.must_call or self.only is not None else "tools"
