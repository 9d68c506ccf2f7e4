"""A model: an engine, the names that it is served under, and the format of its prompts and calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from gpt_oss_server.constraints.binding import Binding, bind, bind_plain, make_ready
from gpt_oss_server.constraints.wanted import Wanted
from gpt_oss_server.errors import EngineBroken, InvalidRequest, from_inference
from gpt_oss_server.harmony.encoding import Encoding, load_encoding
from gpt_oss_server.harmony.render import CallForm, Renderer
from gpt_oss_server.models.limits import TurnLimits, turn_limits
from gpt_oss_server.models.logged import LoggedEngine
from gpt_oss_server.settings import Settings
from inference.engine import Engine, EngineInfo, InferenceError, Loadable, Shared, State
from inference.grammar import Grammar
from tools.fair_threads import FairThreads

ANY_MODEL = "*"
_binders = FairThreads(2, "grammars")  # a schema of thousands of properties takes one for a second
_UNHURRIED = 2.0  # seconds
_RETRY = 5.0  # seconds until a broken engine is worth another request


@dataclass(slots=True)
class Condition:
    """Whether an engine can generate, as whoever checks it last found."""

    problem: str | None = None  # why it cannot, as a sentence


@dataclass(frozen=True, slots=True)
class Model:
    engine: Engine
    settings: Settings
    encoding: Encoding
    renderer: Renderer
    condition: Condition = field(default_factory=Condition)
    title: str | None = None  # the operator's name for it, which takes the place of the engine's

    @classmethod
    def of(
        cls, engine: Engine, settings: Settings, encoding: Encoding | None = None, title: str | None = None
    ) -> Model:
        encoding = encoding or load_encoding()
        if settings.log_prompts:
            engine = LoggedEngine(engine, encoding)
        form = CallForm(settings.call_form.replace("-", "_"))
        return cls(engine, settings, encoding, Renderer(encoding, call_form=form), title=title)

    @property
    def info(self) -> EngineInfo:
        return self.engine.info

    @property
    def limits(self) -> TurnLimits:
        return turn_limits(self.info, self.settings)

    @property
    def names(self) -> list[str]:
        """The listed names: its own first, then the operator's further ones."""
        names = [self.title or self.info.name, *self.settings.served_model_name]
        return [name for name in dict.fromkeys(names) if name != ANY_MODEL]

    @property
    def name(self) -> str:
        """The name that answers show where a request names no model."""
        return self.names[0]

    @property
    def takes_any_name(self) -> bool:
        return ANY_MODEL in self.settings.served_model_name

    def check_room(self) -> None:
        """Refuses what the engine would, and all if it is broken: later, a stream may have begun."""
        if self.condition.problem is not None:
            raise EngineBroken(f"The engine cannot generate. {self.condition.problem}", retry_after=_RETRY)
        if isinstance(self.engine, Shared):
            try:
                self.engine.check_room()
            except InferenceError as error:
                raise from_inference(error) from error

    @property
    def state(self) -> State:
        if self.condition.problem is not None:
            return "failed"
        return self.engine.state if isinstance(self.engine, Loadable) else "loaded"

    def loadable(self) -> Loadable:
        """Its engine, to load or unload it."""
        if not isinstance(self.engine, Loadable):
            raise InvalidRequest(
                f"The model {self.name!r} stays loaded while the server runs. Only checkpoints that "
                "run in it can be unloaded, where it is started with --models-max or --idle-unload.",
                param="model",
            )
        return self.engine

    def counters(self) -> dict[str, float]:
        """The engine's measures, if it has any."""
        return dict(self.engine.measures()) if isinstance(self.engine, Shared) else {}

    def make_ready(self) -> None:
        """Starts work for which the first request would wait; without grammars, the first schema alone."""
        make_ready(self.encoding, after=0.0 if self.info.enforces_grammar else _UNHURRIED)

    async def bound(self, wanted: Wanted, *, client: str = "", owner: str = "") -> Binding:
        """How this engine binds a turn to a form. Clients share the threads; grammars are the owner's."""
        enforces, notation = self.info.enforces_grammar, self.info.notation
        if not wanted.binds and not enforces and notation is None:
            return Binding()
        guides = self.settings.guide_arguments
        work = partial(bind, wanted, self.encoding, enforces=enforces, guides=guides, notation=notation)
        return await _binders.run(client, partial(work, owner=owner))

    async def bound_plain(self, wanted: Wanted, *, client: str, owner: str) -> Grammar:
        """The same for a plain completion, for an engine that enforces grammars."""
        return await _binders.run(client, partial(bind_plain, wanted, self.encoding, owner=owner))
