"""The kinds of settings: their syntax in a flag or a variable, their constraints and their display."""

import math
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import Field, dataclass
from typing import Any, Final, Literal, TypeGuard, TypeVar

from inference.options import Values, option

ENV_PREFIX = "GPT_OSS_SERVER_"
T = TypeVar("T")
AUTO: Final = "auto"
Secrecy = Literal["no", "url", "whole"]
"""Which part of a value must not be shown: none, the password in a URL, or all of it. A file may hold it."""


class SettingsError(ValueError):
    """An unusable setting. Its text is a sentence for the person who set it."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `must` completes the sentence "--flag …" for every possible mistake."""

    metavar: str
    must: str
    parse: Callable[[str], object]  # raises ValueError for other text
    holds: Callable[[object], bool]
    show: Callable[[Any], str] = str
    switch: bool = False  # --flag and --no-flag
    valued: bool = False  # a switch whose flag may also have a value
    many: bool = False  # the flag may be repeated; the variable is a list with commas


@dataclass(frozen=True, slots=True)
class Option:
    """One row of the table: a field of `Settings` with its description for the command line and the docs."""

    name: str
    default: object
    kind: Kind
    section: str
    help: str
    also: tuple[str, ...] = ()  # what other programs call the flag
    common: bool = False  # among the first flags that a help shows
    secret: Secrecy = "no"

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return ENV_PREFIX + self.name.upper()

    @property
    def shown_default(self) -> str:
        return self.kind.show(self.default)

    def read(self, text: str, source: str) -> object:
        """Parses and checks `text`; an error names `source`."""
        with suppress(ValueError):
            value = self.kind.parse(text.strip())
            if self.kind.holds(value):
                return value
        raise SettingsError(f"{source} {self.kind.must}, not {text!r}.{_hint(self, text)}")

    def from_flag(self, given: str | bool | list[str]) -> object:
        """Reads what the command line parsed: a switch, a text, or the texts of a repeatable flag."""
        if isinstance(given, bool):
            return given
        if isinstance(given, str):
            return self.read(given, self.flag)
        # Unlike a variable, not split at commas: each value has its own flag and may contain a comma.
        values = tuple(text.strip() for text in given)
        if not self.kind.holds(values):
            raise SettingsError(f"{self.flag} {self.kind.must}, not {given[-1]!r}.")
        return values

    def check(self, value: object) -> None:
        if not self.kind.holds(value):
            raise SettingsError(f"{self.name} {self.kind.must}, not {value!r}.")


def setting(default: T, kind: Kind, help: str, **more: Any) -> T:
    """A field of the table. One that is unset by default can be unset again, with `none`."""
    return option(default, optional(kind) if default is None else kind, help, **more)


def option_of(row: Field[Any], section: str) -> Option:
    """The rows of engines (`inference/options.py`) name their kinds."""
    kind = row.metadata["kind"]
    if isinstance(kind, Values):
        kinds: tuple[Callable[..., Kind], ...] = (text, choice, whole, size, duration, switch_or)
        [make] = [known for known in kinds if known.__name__ == kind.kind]
        own = make(*kind.arguments)
        kind = optional(own) if kind.optional else own
    return Option(row.name, row.default, section=section, **{**row.metadata, "kind": kind})


def _hint(option: Option, text: str) -> str:
    # A Kubernetes service named gpt-oss-server sets GPT_OSS_SERVER_PORT=tcp://… in every pod near it.
    if option.name != "port" or not text.startswith("tcp://"):
        return ""
    return (
        " Kubernetes sets this variable for a service named gpt-oss-server: set `enableServiceLinks: false`, "
        "or rename the service."
    )


# --- the kinds -------------------------------------------------------------------------------------


def text(metavar: str = "TEXT") -> Kind:
    return Kind(metavar, "must be some text", str, lambda v: isinstance(v, str) and bool(v.strip()))


def choice(*values: str) -> Kind:
    listed = " or ".join(filter(None, (", ".join(values[:-1]), values[-1])))
    return Kind("|".join(values), f"must be {listed}", str.lower, lambda v: v in values)


def place(shown: str, alone: str, *kinds: str) -> Kind:
    """`alone`, or one of the kinds, perhaps with a colon and where it is; `shown` is how they are written."""
    return Kind(
        "PLACE",
        f"must be {shown}",
        str,
        lambda v: isinstance(v, str) and (v == alone or v.partition(":")[0] in kinds),
    )


def whole(metavar: str, low: int, high: int | None = None) -> Kind:
    bounds = f"of at least {low}" if high is None else f"from {low} to {high}"
    return Kind(
        metavar,
        f"must be a whole number {bounds}",
        _parse_whole,
        lambda v: _is_int(v) and low <= v and (high is None or v <= high),
    )


def size(metavar: str = "SIZE", *, least: int = 1) -> Kind:
    at_least = f", at least {_largest_unit(least, _SIZES_SHOWN)}" if least > 1 else ""
    return Kind(
        metavar,
        f"must be a size in bytes such as 1048576, 512KiB, 64MiB or 2GiB{at_least}",
        lambda t: round(_scaled(t, _SIZES)),
        lambda v: _is_int(v) and v >= least,
        lambda v: _largest_unit(v, _SIZES_SHOWN),
    )


def duration(metavar: str = "TIME", *, zero: bool = False) -> Kind:
    return Kind(
        metavar,
        "must be a time such as 30 (seconds), 90s, 15m, 12h or 30d",
        lambda t: _scaled(t, _TIMES),
        lambda v: isinstance(v, int | float) and not isinstance(v, bool) and (v > 0 or (zero and v == 0)),
        lambda v: _largest_unit(round(v), _TIMES_SHOWN) if v == round(v) else f"{v:g}",
    )


def switch() -> Kind:
    return Kind(
        "on|off",
        "must be on or off",
        _parse_switch,
        lambda v: isinstance(v, bool),
        lambda v: "on" if v else "off",
        switch=True,
    )


def switch_or(word: str, place: str, shown: str) -> Kind:
    """on or off; `word`, which is on; or `place`, a colon and where it is."""
    return Kind(
        f"{word}|{place}:{shown}",
        f"must be {word} (or on), {place}:{shown}, or off",
        lambda t: True if t.lower() == word else _SWITCHES.get(t.lower(), t),
        lambda v: isinstance(v, bool) or (isinstance(v, str) and v.startswith(f"{place}:") and v[-1] != ":"),
        lambda v: v if isinstance(v, str) else ("on" if v else "off"),
        switch=True,
        valued=True,
    )


def names(
    metavar: str = "NAME", noun: str = "names", fits: Callable[[str], bool] = lambda name: True
) -> Kind:
    return Kind(
        metavar,
        f"must be one or more {noun}",
        lambda t: tuple(part.strip() for part in t.split(",") if part.strip()),
        lambda v: isinstance(v, tuple) and all(isinstance(name, str) and name and fits(name) for name in v),
        lambda v: ", ".join(v) or "none",
        many=True,
    )


def optional(kind: Kind, word: str = "none", meant: object = None) -> Kind:
    """The given kind, or a word that stands for a value of its own."""
    return Kind(
        kind.metavar,
        f"{kind.must}, or {word}",
        lambda t: meant if t.lower() == word else kind.parse(t),
        lambda v: v == meant or kind.holds(v),
        lambda v: word if v == meant else kind.show(v),
    )


def automatic(kind: Kind) -> Kind:
    return optional(kind, AUTO, AUTO)


def is_origin(text: str) -> bool:
    """Whether `text` is `*` or an origin as browsers send it: no path, and no default port."""
    return text == "*" or re.fullmatch(r"[A-Za-z][A-Za-z0-9+.-]*://[^/\s?#@]+/?", text) is not None


def is_host(text: str) -> bool:
    """Whether `text` is `*` or a host without scheme, port and path; IPv6 addresses may have brackets."""
    return text == "*" or re.fullmatch(r"[A-Za-z0-9._-]+|\[?[0-9A-Fa-f:.]+\]?", text) is not None


# --- reading numbers -------------------------------------------------------------------------------

_SIZES = {"": 1, "b": 1}
_SIZES |= {f"{unit}{tail}": 1024**n for n, unit in enumerate("kmgt", 1) for tail in ("", "b", "ib")}
_TIMES = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
_SIZES_SHOWN = (("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024))
_TIMES_SHOWN = (("d", 86_400), ("h", 3600), ("m", 60))
_SWITCHES = {"on": True, "true": True, "yes": True, "1": True}
_SWITCHES |= {"off": False, "false": False, "no": False, "0": False}


def _is_int(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _parse_whole(text: str) -> int:
    if not re.fullmatch(r"[+-]?\d[\d_,]*", text):
        raise ValueError(text)
    return int(text.replace(",", ""))


def _parse_switch(text: str) -> bool:
    if text.lower() not in _SWITCHES:
        raise ValueError(text)
    return _SWITCHES[text.lower()]


def _scaled(text: str, units: dict[str, int]) -> float:
    parts = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if parts is None or parts[2].lower() not in units:
        raise ValueError(text)
    value = float(parts[1]) * units[parts[2].lower()]
    if not math.isfinite(value):
        raise ValueError(text)
    return value


def _largest_unit(value: int, units: tuple[tuple[str, int], ...]) -> str:
    """The shortest exact form: 2592000 is 30d, 90 is 90."""
    for unit, scale in units:
        if value and value % scale == 0:
            return f"{value // scale}{unit}"
    return str(value)
