"""What comes behind a call where a generation goes on past it: another message of its own, or not.

In: the tokens behind `<|call|>`, one at a time. Out: whether they have become `<|start|>assistant`, or can no
longer. What else the model writes there (a tool's answer, as it imagines it) belongs to no message.
"""

from __future__ import annotations

from gpt_oss_server.harmony.encoding import FIRST_SPECIAL, START, Encoding

_ROLE = b"assistant"


class Between:
    """What comes behind a call: another passage, once it is `<|start|>assistant`, however that is split."""

    def __init__(self, encoding: Encoding) -> None:
        self._encoding = encoding
        self._started = False
        self._said = b""
        self.led_elsewhere = False

    @property
    def led_on(self) -> bool:
        return self._said == _ROLE

    def take(self, token: int) -> None:
        if not self._started:
            self._started = token == START
            self.led_elsewhere = not self._started
        elif 0 <= token < FIRST_SPECIAL:
            self._said += self._encoding.ordinary_bytes(token)
            self.led_elsewhere = not _ROLE.startswith(self._said)
        else:
            self.led_elsewhere = True
