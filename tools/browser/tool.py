"""The browser as a tool: one for the server, with a session for each conversation.

Takes a backend and settings, returns sessions. It owns the fetcher, the only way to untrusted addresses.
"""

from __future__ import annotations

from tools.browser.backends.base import Backend
from tools.browser.declaration import BROWSER
from tools.browser.network.fetch import Fetcher
from tools.browser.session import BrowserSession, BrowserSettings
from tools.browser.view import CountTokens, estimate_tokens
from tools.tool import Declaration


class BrowserTool:
    """`search`, `open` and `find` over one backend. It closes the backend.

    `view_tokens` limits what one call shows, `timeout` (seconds) how long it takes. `count_tokens` counts as
    the model does; the default is an estimate. `allow_private_hosts` is for tests and lab networks.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        allow_private_hosts: bool = False,
        view_tokens: int = 1024,
        timeout: float = 30.0,
        count_tokens: CountTokens = estimate_tokens,
        fetcher: Fetcher | None = None,
    ) -> None:
        if view_tokens < 1 or timeout <= 0:
            raise ValueError("view_tokens and timeout must be positive")
        self._fetcher = fetcher or Fetcher(allow_private_hosts=allow_private_hosts, timeout=timeout)
        self._settings = BrowserSettings(backend, self._fetcher, view_tokens, timeout, count_tokens)

    @property
    def declaration(self) -> Declaration:
        return BROWSER

    def open(self) -> BrowserSession:
        return BrowserSession(self._settings)

    async def close(self) -> None:
        await self._settings.backend.close()
        await self._fetcher.close()
