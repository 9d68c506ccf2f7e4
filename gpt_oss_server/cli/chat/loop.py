"""The loop of a chat: a message is answered, a line with a slash is a command."""

from collections.abc import Callable
from pathlib import Path

from gpt_oss_server.cli.chat.conversation import Conversation
from gpt_oss_server.cli.chat.reader import Reader
from gpt_oss_server.cli.terminal import console
from gpt_oss_server.cli.terminal.console import visible
from gpt_oss_server.settings import EFFORTS

HELP = f'''\
/new           start a new conversation
/effort WORD   how much to reason from now on: {", ".join(EFFORTS)}
/stats         show the last answer's tokens and times
/tools         show what the model can call
/save FILE     save the conversation: as JSON if the name ends in .json, else as Markdown
/quit, Ctrl-D  quit
Ctrl-C         stop the answer
"""            begin a message of several lines, and end it; pasted lines are one message too'''


class Loop:
    def __init__(self, conversation: Conversation, reader: Reader) -> None:
        self._conversation = conversation
        self._reader = reader
        self._saved: set[Path] = set()  # files of this chat, which it may write again
        self._commands: dict[str, Callable[[str], None]] = {
            "/new": self._new,
            "/effort": self._effort,
            "/stats": lambda _: console.out(conversation.record.stats()),
            "/tools": self._tools,
            "/save": self._save,
            "/help": lambda _: console.out(HELP),
        }

    def talk(self) -> None:
        """Until the user quits or the input ends."""
        while (message := self._reader.read()) is not None:
            words = message.split(maxsplit=1)
            if not words:
                continue
            if words[0] in ("/quit", "/exit", "/bye"):
                return
            if not words[0].startswith("/") or "\n" in message.strip():
                self._conversation.answer(message)
            elif (obey := self._commands.get(words[0])) is not None:
                obey(words[1].strip() if len(words) > 1 else "")
            else:
                line = visible(" ".join(words).strip())
                self._conversation.note(f"no such command: {line}; /help lists them")

    def _new(self, argument: str) -> None:
        self._conversation.start_over()
        self._conversation.note("a new conversation")

    def _effort(self, argument: str) -> None:
        if argument in EFFORTS:
            self._conversation.effort = argument
            self._conversation.note(f"effort: {argument}")
        else:
            self._conversation.note(f"/effort takes one of {', '.join(EFFORTS)}")

    def _tools(self, argument: str) -> None:
        if not self._conversation.tools:
            console.out("none; -b lets the model search, -p run Python")
        for tool in self._conversation.tools:
            console.out(tool["type"])

    def _save(self, argument: str) -> None:
        if not argument:
            self._conversation.note("/save needs the name of a file")
            return
        try:
            path = Path(argument).expanduser().absolute()
            if path.exists() and path not in self._saved and not self._may_replace(path):
                self._conversation.note("not saved")
                return
            self._conversation.record.save(path)
        except (OSError, RuntimeError) as error:
            why = error.strerror if isinstance(error, OSError) else error
            self._conversation.note(f"not saved: {why}")
        else:
            self._saved.add(path)
            self._conversation.note(f"saved in {visible(argument)}")

    def _may_replace(self, path: Path) -> bool:
        try:
            return self._reader.confirms(f"{visible(path.name)} exists. Replace it? [y/N] ")
        except KeyboardInterrupt:
            console.out()
            return False
