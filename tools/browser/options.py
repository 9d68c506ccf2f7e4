"""The settings of a request's web_search tool. What cannot be read is absent: the server has checked them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlsplit

from tools.browser.history import kept_pages
from tools.browser.page import Page


@dataclass(frozen=True, slots=True)
class ContextSize:
    """How much of the web a call may add to the context."""

    results: int  # shown if the model gives no number
    most_results: int  # the most that the model may request
    snippet_chars: int
    view_factor: int  # multiplies the ordinary token budget of a view


SIZES: Final = {
    "low": ContextSize(results=5, most_results=5, snippet_chars=160, view_factor=1),
    "medium": ContextSize(results=10, most_results=20, snippet_chars=240, view_factor=1),
    "high": ContextSize(results=20, most_results=30, snippet_chars=400, view_factor=2),
}


@dataclass(frozen=True, slots=True)
class BrowseOptions:
    domains: tuple[str, ...] = ()  # empty: every domain
    blocked: tuple[str, ...] = ()
    country: str | None = None  # two letters
    size: ContextSize = SIZES["medium"]
    first_cursor: int = 0  # after those that the model has seen
    pages: Mapping[int, Page] = field(default_factory=dict)  # of earlier sessions, by cursor
    given: Mapping[str, Any] = field(default_factory=dict)  # all of them, as they were given

    def permits(self, url: str) -> bool:
        """Whether the domain filter permits it. A URL without a domain (a local file) is not filtered."""
        if not (self.domains or self.blocked) or not url.lower().startswith(("http:", "https:")):
            return True
        try:
            host = ascii_host(urlsplit(url).hostname or "")
        except ValueError:
            return False
        is_allowed = not self.domains or _is_within(host, self.domains)
        return is_allowed and not _is_within(host, self.blocked)


def read_options(options: Mapping[str, Any]) -> BrowseOptions:
    location = options.get("user_location")
    country = location.get("country") if isinstance(location, Mapping) else None
    return BrowseOptions(
        domains=_domains(options.get("filters"), "allowed_domains"),
        blocked=_domains(options.get("filters"), "blocked_domains"),
        country=country.upper() if isinstance(country, str) and len(country) == 2 else None,
        size=SIZES.get(str(options.get("search_context_size")), SIZES["medium"]),
        first_cursor=options.get("first_cursor", 0),
        pages=kept_pages(options.get("pages", ())),
        given=options,
    )


def _is_within(host: str, domains: Iterable[str]) -> bool:
    return any(host == domain or host.endswith(f".{domain}") for domain in domains)


def _domains(filters: object, key: str) -> tuple[str, ...]:
    named = filters.get(key) if isinstance(filters, Mapping) else None
    if not isinstance(named, (list, tuple)):
        return ()
    return tuple(_domain(name) for name in named if isinstance(name, str) and name.strip())


def _domain(name: str) -> str:
    """`https://OpenAI.com/docs` and `openai.com` name the same domain."""
    text = name.strip()
    try:
        host = urlsplit(text if "//" in text else f"//{text}").hostname
    except ValueError:
        host = None
    # An unreadable filter must not become no filter: kept unchanged, it matches nothing.
    return ascii_host((host or text).removeprefix("*."))


def ascii_host(host: str) -> str:
    """A host as DNS spells it: lower case, no final dot, international names in their ASCII form."""
    host = host.lower().rstrip(".")
    try:
        return host.encode("idna").decode("ascii")
    except UnicodeError:
        return host
