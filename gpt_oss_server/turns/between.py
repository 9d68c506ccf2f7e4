"""The tokens after a call, where the generation continues: they begin another passage, or they do not.

In: the tokens after `<|call|>`, one at a time. Out: whether they are `<|start|>assistant`, or can no longer
become it. Anything else that the model writes there (a tool's result, as it imagines it) belongs to no
message.
"""

from __future__ import annotations

from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, START, Encoding

_ROLE = b"assistant"


class Between:
    """`led_on` once the tokens are `<|start|>assistant`, however it is split; else `led_elsewhere`."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._started = False
        self._role = b""
        self.led_elsewhere = False

    @property
    def led_on(self) -> bool:
        return self._role == _ROLE

    def take(self, token: int) -> None:
        if not self._started:
            self._started = token == START
            self.led_elsewhere = not self._started
        elif 0 <= token < FIRST_SPECIAL:
            self._role += self._encoding.ordinary_bytes(token)
            self.led_elsewhere = not _ROLE.startswith(self._role)
        else:
            self.led_elsewhere = True
