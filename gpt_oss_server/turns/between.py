"""The tokens after a call, where the generation continues: whether they begin another passage.

Takes the tokens after `<|call|>`, one at a time. Reports whether they are `<|start|>assistant`, or can no
longer become it. Anything else that the model writes there (a tool's result that it imagines) belongs to no
message.
"""

from __future__ import annotations

from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, START, Encoding

_ROLE = b"assistant"


class Between:
    """`begins_passage` once the tokens are `<|start|>assistant`, however split; else `cannot_begin`."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._started = False
        self._role = b""
        self.cannot_begin = False

    @property
    def begins_passage(self) -> bool:
        return self._role == _ROLE

    def take(self, token: int) -> None:
        if not self._started:
            self._started = token == START
            self.cannot_begin = not self._started
        elif 0 <= token < FIRST_SPECIAL:
            self._role += self._encoding.ordinary_bytes(token)
            self.cannot_begin = not _ROLE.startswith(self._role)
        else:
            self.cannot_begin = True
