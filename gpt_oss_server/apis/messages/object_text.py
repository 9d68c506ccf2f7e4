"""The text of a call's input while it is written: what may be sent, so that clients can parse it at any time.

Takes pieces of the model's text. Returns what of it belongs to one JSON object, with control characters in
strings escaped, as models write line breaks there.
"""

import re

from pydantic_core import to_json

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{0,4})')
_SPACE = re.compile(r"[ \t\r\n]+")
_SIGNS = re.compile(r"[-+.0-9A-Za-z]+")
_WORD = re.compile(r"true|false|null|-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?")
_BEGUN = re.compile(r"t(ru?)?|f(a(ls?)?)?|n(ul?)?|-?((0|[1-9]\d*)(\.\d*)?([eE][-+]?\d*)?)?")
_LONGEST_WORD = 1_000  # signs: no reader has use for a longer number
_END = {"{": "}", "[": "]"}


class ObjectText:
    def __init__(self) -> None:
        self.is_whole = False  # the object is complete; no more text belongs to it
        self.is_broken = False  # the text is no object
        self._open: list[str] = []  # the brackets that are open
        self._next = "object"
        self._in_string = False
        self._escape = ""  # as far as it was written
        self._word = ""  # a number, true, false or null, likewise

    def feed(self, text: str) -> str:
        """What of the text belongs to the object."""
        sent, at = [], 0
        while at < len(text) and not (self.is_broken or self.is_whole):
            piece = self._string(text, at) if self._in_string else self._token(text, at)
            sent.append(self._shown(piece))
            at += len(piece)
        return "".join(sent)

    def _shown(self, piece: str) -> str:
        if self.is_broken or self._next == "object":  # white space before it alone is no beginning of one
            return ""
        if self._in_string and piece < " ":
            return to_json(piece)[1:-1].decode()
        return piece

    def _string(self, text: str, at: int) -> str:
        if self._escape:
            self._escape += text[at]
            self.is_broken = not _ESCAPE.fullmatch(self._escape)
            if len(self._escape) == (6 if self._escape[1] == "u" else 2):
                self._escape = ""
        elif plain := _PLAIN.match(text, at):
            return plain[0]
        elif text[at] == "\\":
            self._escape = text[at]
        elif text[at] == '"':
            self._in_string = False
            self._next = ":" if self._next.startswith("key") else "end"
        return text[at]

    def _token(self, text: str, at: int) -> str:
        if self._next == "word" and not _SIGNS.match(text, at):
            self.is_broken, self._next, self._word = not _WORD.fullmatch(self._word), "end", ""
            if self.is_broken:
                return text[at]
        if space := _SPACE.match(text, at):
            return space[0]
        sign, wanted = text[at], self._next
        if (sign in "{[" and wanted.startswith("value")) or (sign == "{" and wanted == "object"):
            self._begin(sign)
        elif sign == '"' and wanted.startswith(("key", "value")):
            self._in_string = True
        elif sign == ":" and wanted == ":":
            self._next = "value"
        elif sign == "," and wanted == "end":
            self._next = "key" if self._open[-1] == "{" else "value"
        elif (
            self._open and sign == _END[self._open[-1]] and (wanted == "end" or wanted.endswith(f"or {sign}"))
        ):
            self._open.pop()
            self._next, self.is_whole = "end", not self._open
        elif wanted.startswith(("value", "word")) and (word := _SIGNS.match(text, at)):
            self._next, self._word = "word", self._word + word[0]
            known = _WORD.fullmatch(self._word) or _BEGUN.fullmatch(self._word)
            self.is_broken = known is None or len(self._word) > _LONGEST_WORD
            return word[0]
        else:
            self.is_broken = True
        return sign

    def _begin(self, bracket: str) -> None:
        self._open.append(bracket)
        self._next = "key or }" if bracket == "{" else "value or ]"
