"""The recipients of calls: which ones a request declares, and which one the model meant.

Takes the word after `to=`. Returns the recipient that routing tables know, or None if it is not a call.

    sampled                      known as                              result
    functions.f, browser.search  declared                              itself
    f                            function f is declared                functions.f
    search                       browser.search is on, no function     browser.search
    functions.browser.search     browser.search is on, no function     browser.search
    functions.python             python is on, no function python      python
    functions.fjson              function f is declared                functions.f: its type is glued to it
    assistant, user, all, …      roles                                 None: not a call
    any word                     the request allows no call            None
    anything else                not declared                          itself, for the client to judge
"""

from dataclasses import dataclass

from gpt_oss_server.harmony.events import Slip, SlipKind

_FUNCTIONS = "functions."
_TYPES = ("json", "code")
_NO_TOOLS = frozenset({"", "assistant", "user", "all", "system", "developer", "tool", "none", "functions"})


@dataclass(frozen=True, slots=True)
class Recipients:
    """A request's declarations: functions by name, and the full names of its enabled built-in tools."""

    functions: frozenset[str] = frozenset()
    builtin: frozenset[str] = frozenset()  # "browser.search", "python", "server_label.tool"
    may_call: bool = True  # False: a call is a text to the user

    def knows(self, word: str) -> bool:
        """Whether a word is a recipient, possibly bare or misplaced."""
        return self._full_name(word) is not None

    def resolve(self, word: str) -> tuple[str | None, tuple[Slip, ...]]:
        """The recipient in its canonical form, and the slips repaired on the way."""
        if word in _NO_TOOLS or not self.may_call:
            return None, (Slip(SlipKind.NO_TOOL, f"'to={word}' addresses no tool"),)
        full = self._full_name(word)
        glued = next((end for end in _TYPES if word.endswith(end)), "") if full is None else ""
        if glued and (meant := self._full_name(word.removesuffix(glued))) is not None:
            return meant, (Slip(SlipKind.GLUED_TYPE, f"the type '{glued}' is glued to '{meant}'"),)
        if full is None:
            return word, (Slip(SlipKind.UNDECLARED_RECIPIENT, f"'{word}' was not declared"),)
        if full == word:
            return full, ()
        kind = SlipKind.MISPLACED_RECIPIENT if word.startswith(_FUNCTIONS) else SlipKind.BARE_RECIPIENT
        return full, (Slip(kind, f"'{word}' was taken for '{full}'"),)

    def _full_name(self, word: str) -> str | None:
        if word in self.builtin:
            return word
        name = word.removeprefix(_FUNCTIONS)
        if name in self.functions:
            return _FUNCTIONS + name
        if name in self.builtin:
            return name
        matches = [full for full in self.builtin if full.rpartition(".")[2] == word]
        return matches[0] if len(matches) == 1 else None


def called_name(recipient: str) -> str:
    """The name that a client reads for an undeclared recipient: without the prefix `functions.`."""
    while recipient.startswith(_FUNCTIONS):
        recipient = recipient.removeprefix(_FUNCTIONS)
    return recipient or _FUNCTIONS.rstrip(".")
