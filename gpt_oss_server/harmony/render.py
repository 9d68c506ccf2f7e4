"""Messages to token ids: everything that a prompt consists of. It must not know requests, items or engines.

Messages have the tokens that the library would give them, except past calls and their results, whose form
differs between the library's releases, and the schemas of functions, where its renderer is lossy
(typescript.py).
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import lru_cache
from itertools import takewhile

from gpt_oss_server.harmony.declarations import Declared, Effort, ToolNamespace, developer_text, tools_section
from gpt_oss_server.harmony.encoding import CALL, CHANNEL, CONSTRAIN, END, MESSAGE, START, STOP_IDS, Encoding
from gpt_oss_server.harmony.events import Channel, ClosedBy, MessageFinished
from gpt_oss_server.harmony.history import Layout, Segment, kept, split_leading_instructions

DEFAULT_IDENTITY = "You are ChatGPT, a large language model trained by OpenAI."
DEFAULT_KNOWLEDGE_CUTOFF = "2024-06"
_CHANNELS = "# Valid channels: analysis, commentary, final. Channel must be included for every message."
_FUNCTIONS_CHANNEL = "Calls to these tools must go to the commentary channel: 'functions'."

# Results that stand in for those that never come.
CUT_OFF = "This call was cut off before it was complete, so it was not made."
NOT_AWAITED = "The response ended before this call had a result."

_ENDS = STOP_IDS | {END}


class CallForm(StrEnum):
    """How past calls are written. A switch, because the evidence on the model's preference conflicts."""

    CHANNEL_FIRST = "channel_first"  # <|channel|>commentary to=functions.f …: as the model itself samples it
    RECIPIENT_FIRST = "recipient_first"  # to=functions.f<|channel|>commentary …


class Renderer:
    """Makes segments and prompts. Its only state is the vocabulary and the form of calls."""

    def __init__(self, encoding: Encoding, *, call_form: CallForm = CallForm.CHANNEL_FIRST) -> None:
        self._encoding = encoding
        self._call_form = call_form
        # `<|start|>assistant`: the end of every prompt and the start of every sampled message.
        self.cue = (START, *encoding.encode("assistant"))
        self._header = lru_cache(256)(self._header_of)  # to encode each takes as long as to encode a text

    # The head of a prompt

    def system(
        self,
        *,
        effort: Effort,
        date: str | None,
        identity: str | None = None,
        knowledge_cutoff: str | None = DEFAULT_KNOWLEDGE_CUTOFF,
        builtin_tools: Sequence[ToolNamespace] = (),
        function_tools: bool = False,
    ) -> Segment:
        """`function_tools`: the developer message declares functions."""
        about = [DEFAULT_IDENTITY if identity is None else identity]
        if knowledge_cutoff is not None:
            about.append(f"Knowledge cutoff: {knowledge_cutoff}")
        if date is not None:
            about.append(f"Current date: {date}")
        sections = ["\n".join(about), f"Reasoning: {effort}"]
        if builtin_tools:
            sections.append(tools_section(builtin_tools))
        sections.append(f"{_CHANNELS}\n{_FUNCTIONS_CHANNEL}" if function_tools else _CHANNELS)
        return Segment("system", self._message("system", "\n\n".join(sections)))

    def developer(self, declared: Declared) -> Segment | None:
        """The developer message of a request, or None if there is nothing to declare."""
        text = developer_text(declared)
        if not text:
            return None
        return Segment("developer", self._message("developer", text), text=declared.instructions)

    def opening(
        self, system: Segment, history: Sequence[Segment], declared: Declared
    ) -> tuple[list[Segment], list[Segment]]:
        """The head of the prompt, with leading developer messages merged into it, and the remaining history.

        In training the model saw one developer message with instructions and tools together; a conversation
        that starts with developer items would show it two or three. The request's instructions come first.
        """
        leading, rest = split_leading_instructions(history)
        merged = "\n\n".join(text for text in (declared.instructions, *leading) if text)
        developer = self.developer(replace(declared, instructions=merged or None))
        return [system] if developer is None else [system, developer], rest

    # The conversation

    def user(self, text: str, *, name: str | None = None) -> Segment:
        return Segment("user", self._message("user" if name is None else f"user:{name}", text))

    def developer_message(self, text: str) -> Segment:
        """A developer or system item in the conversation, in the form that instructions had in training."""
        return Segment("developer", self._message("developer", developer_text(Declared(text))), text=text)

    def tools_message(self, section: str) -> Segment:
        """A developer message of its own with a `# Tools` section: tools available from here on."""
        return Segment("developer", self._message("developer", section))

    def answer(self, text: str) -> Segment:
        return Segment("assistant", self._message("assistant", text, "final"), "final")

    def preamble(self, text: str) -> Segment:
        return Segment("assistant", self._message("assistant", text, "commentary"), "commentary")

    def reasoning(self, text: str) -> Segment:
        return Segment("assistant", self._message("assistant", text, "analysis"), "analysis")

    def call(
        self,
        recipient: str,
        arguments: str,
        *,
        channel: Channel = "commentary",
        content_type: str | None = "json",
    ) -> Segment:
        """A past call. As the model does, writes <|constrain|> before `json` but not before other types."""
        encode = self._encoding.encode
        to = encode(f" to={recipient}")
        in_channel = [CHANNEL, *encode(channel)]
        address = in_channel + to if self._call_form is CallForm.CHANNEL_FIRST else to + in_channel
        of_type: list[int] = []
        if content_type == "json":
            of_type = [*encode(" "), CONSTRAIN, *encode("json")]
        elif content_type is not None:
            of_type = encode(f" {content_type}")
        header = (*self.cue, *address, *of_type, MESSAGE)
        tokens = self._encoding.framed(header, arguments, CALL)
        return Segment("assistant", tokens, channel, recipient)

    def tool_result(self, recipient: str, text: str, *, channel: Channel = "commentary") -> Segment:
        """The result of the tool called as `recipient`."""
        author = self.author_of_result(recipient)
        header = (START, *author, CHANNEL, *self._encoding.encode(channel), MESSAGE)
        return Segment("tool", self._encoding.framed(header, text, END), channel, "assistant")

    def author_of_result(self, recipient: str) -> tuple[int, ...]:
        """What a result of the tool called as `recipient` has between <|start|> and its channel."""
        encode = self._encoding.encode
        return (*encode(recipient), *encode(" to=assistant"))

    def from_completion(self, tokens: Sequence[int], messages: Sequence[MessageFinished]) -> list[Segment]:
        """A generation as history: the sampled ids, each message with its own start and end.

        Sampling starts after `<|start|>assistant`, so the first message gets this cue, as does any message
        that the model started without it. A final `<|return|>` becomes `<|end|>`, a call's becomes
        `<|call|>`, and messages that were cut off get `<|end|>`. Stray tokens between messages are left out.
        A text that was addressed to a tool has no address here: else it would be a call without a result.
        """
        segments = []
        for message in messages:
            header, span = message.header, tokens[message.start : message.own_end or message.end]
            is_text = header.recipient is None and self._has_address(span)
            ids = (
                self._message("assistant", message.text, header.channel)
                if is_text
                else self._sampled(span, message)
            )
            segments.append(Segment("assistant", ids, header.channel, header.recipient))
        return segments

    # Prompts

    def layout(
        self, head: Sequence[Segment], history: Sequence[Segment], *, all_reasoning: bool = False
    ) -> Layout:
        """The prompt: the head, the history as the model sees it, and the start of the model's turn."""
        return Layout((*head, *kept(history, all_reasoning=all_reasoning)), self.cue)

    def _message(self, author: str, text: str, channel: Channel | None = None) -> Sequence[int]:
        return self._encoding.framed(self._header(author, channel), text, END)

    def _header_of(self, author: str, channel: Channel | None) -> tuple[int, ...]:
        in_channel = () if channel is None else (CHANNEL, *self._encoding.encode(channel))
        return (START, *self._encoding.encode(author), *in_channel, MESSAGE)

    def _has_address(self, span: Sequence[int]) -> bool:
        header = takewhile(lambda token: token != MESSAGE, span)
        return b"to=" in self._encoding.token_bytes(list(header))

    def _sampled(self, span: Sequence[int], message: MessageFinished) -> tuple[int, ...]:
        """One message's ids. Stop tokens before its last one, and all before its <|start|>, are strays."""
        last = len(span)
        while last and span[last - 1] in _ENDS:
            last -= 1
        body = span[:last]
        strays = max((place for place, token in enumerate(body) if token in _ENDS), default=-1)
        begun = max((place for place, token in enumerate(body) if token == START), default=-1)
        start = () if begun > strays else self.cue
        is_call = message.header.recipient is not None
        ends_call = is_call and message.closed_by in (ClosedBy.CALL, ClosedBy.RETURN)
        return (*start, *body[max(begun, strays + 1) :], CALL if ends_call else END)


def unanswered(segments: Iterable[Segment], renderer: Renderer) -> list[Segment]:
    """The calls that no later result answers. Harmony has no ids: a result names its tool, in order."""
    waiting: list[Segment] = []
    for segment in segments:
        if segment.role == "assistant" and segment.recipient is not None:
            waiting.append(segment)
        elif segment.role == "tool":
            answered = (at for at, call in enumerate(waiting) if _answers(segment, call, renderer))
            if (first := next(answered, None)) is not None:
                del waiting[first]
    return waiting


def _answers(result: Segment, call: Segment, renderer: Renderer) -> bool:
    author = renderer.author_of_result(call.recipient or "")
    return result.tokens[1 : 1 + len(author)] == author
