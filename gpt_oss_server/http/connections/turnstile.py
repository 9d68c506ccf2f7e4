"""Requests that arrive together begin one after another, so that a flood of them does not hold up the rest.

Takes what begins a request, and news of connections. Calls the beginnings back in the order of their arrival:
at most one in each turn of the event loop, and none while connections still arrive, of which a turn accepts
one. So a connection that asks for the server's health, which needs not wait here, is accepted soon.
"""

import asyncio
from collections import deque
from collections.abc import Callable

_PATIENCE = 64  # turns for which arriving connections may keep requests waiting


class Turnstile:
    def __init__(self) -> None:
        self._waiting: deque[Callable[[], object]] = deque()
        self._is_quiet = True  # no connection has arrived in this turn
        self._turns = 0  # since the last request

    def connection_arrives(self) -> None:
        self._is_quiet = False

    def pass_through(self, begin: Callable[[], object]) -> None:
        self._waiting.append(begin)
        if len(self._waiting) == 1:
            self._wait_a_turn()

    def _wait_a_turn(self) -> None:
        self._is_quiet = True
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        self._turns += 1
        begin = self._waiting.popleft() if self._is_quiet or self._turns > _PATIENCE else None
        if self._waiting:
            self._wait_a_turn()
        if begin is not None:
            self._turns = 0
            begin()
