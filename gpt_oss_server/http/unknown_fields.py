"""Fields that this server does not know: refused, warned of or ignored, as the operator wants."""

import difflib
import logging
from dataclasses import dataclass
from functools import lru_cache

from starlette.requests import Request

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.errors import UnknownField
from gpt_oss_server.http.body import read_json
from gpt_oss_server.http.fields import Body, inner_bodies
from gpt_oss_server.http.unserved import WITHOUT_EFFECT
from gpt_oss_server.settings import Settings

HEADER = "x-unknown-fields"
_MOST_NAMED = 10
_LONGEST = 80  # characters of a name that are shown
_ALIKE = 0.75
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Unknown:
    name: str
    meant: str | None  # the known field with nearly this name

    def __str__(self) -> str:
        return f"{_shown(self.name)} (did you mean {self.meant}?)" if self.meant else _shown(self.name)


def unknown_fields(body: object, model: type[Body]) -> list[Unknown]:
    """The unknown fields of a request, and those of its objects whose fields are known."""
    if not isinstance(body, dict):
        return []
    unknown = _unknown(body, model, "", WITHOUT_EFFECT)
    for name, part in inner_bodies(model).items():
        inner = body.get(name)
        places = {f"{name}[{i}].": each for i, each in enumerate(inner)} if isinstance(inner, list) else {}
        for place, each in (places or {f"{name}.": inner}).items():
            if isinstance(each, dict):
                unknown += _unknown(each, part, place, frozenset())
    return unknown


def treat_unknown_fields(body: object, model: type[Body], treatment: str) -> None:
    """Refuses or logs a body with unknown fields. `unknown_header` tells the client."""
    if treatment == "ignore" or not (unknown := unknown_fields(body, model)):
        return
    if treatment == "reject":
        first = unknown[0]
        advice = f"Did you mean `{first.meant}`?" if first.meant else "Leave it out."
        raise UnknownField(
            f"The field `{_shown(first.name)}` is unknown. {advice}", param=first.name[:_LONGEST]
        )
    for field in unknown[:_MOST_NAMED]:
        _warn(str(field))


def unknown_header(body: object, model: type[Body], treatment: str) -> dict[str, str]:
    """The header that names the unknown fields, where there are any and the operator wants a warning."""
    unknown = unknown_fields(body, model) if treatment == "warn" else []
    if not unknown:
        return {}
    rest = len(unknown) - _MOST_NAMED
    named = [str(field) for field in unknown[:_MOST_NAMED]] + ([f"{rest} more"] if rest > 0 else [])
    return {HEADER: ", ".join(named)}


async def read_known(
    request: Request, model: type[Body], settings: Settings
) -> tuple[Caller, object, dict[str, str]]:
    """The caller and the body of a request whose unknown fields are treated, and the answer's header."""
    caller, body = await read_json(request, settings.max_body_bytes)
    treat_unknown_fields(body, model, settings.unknown_fields)
    return caller, body, unknown_header(body, model, settings.unknown_fields)


def _unknown(
    body: dict[str, object], model: type[Body], prefix: str, others: frozenset[str]
) -> list[Unknown]:
    fields = {field.alias or name for name, field in model.model_fields.items()}
    names = [name for name in body if name not in fields | others and name not in model.not_served]
    return [Unknown(prefix + name, _meant(name, fields, prefix)) for name in names]


def _meant(name: str, fields: set[str], prefix: str) -> str | None:
    close = difflib.get_close_matches(name[:_LONGEST].lower(), sorted(fields), 1, _ALIKE)
    return prefix + close[0] if close else None


def _shown(name: str) -> str:
    """The name in ASCII without control characters: it becomes a header and a line of the log."""
    return name[:_LONGEST].encode("unicode_escape").decode("ascii")


@lru_cache(256)
def _warn(unknown: str) -> None:
    """Once for each name: a client that sends a field sends it with every request."""
    _log.warning("A request has the unknown field %s. It has no effect.", unknown)
