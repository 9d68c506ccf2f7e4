"""Messages: of users, developers and the assistant.

Takes a message of a request, or text as the model writes it. Returns segments, or the item and its events.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from gpt_oss_server.content.logprobs import Speller, TextScores
from gpt_oss_server.content.parts import text_of
from gpt_oss_server.errors import InvalidRequest
from gpt_oss_server.ids import Ids
from gpt_oss_server.items.builder import Event, EventTexts, Item, ItemBuilder, TextItem
from gpt_oss_server.items.conversation import Conversation
from gpt_oss_server.items.file_search import annotation_of
from gpt_oss_server.items.kind import ItemKind, ItemType
from inference.engine import TokenLogprob

if TYPE_CHECKING:
    from tools.browser.citations import Citation, Piece, Resolve


_PREFIX = "msg"


class MessageBuilder(TextItem):
    about = "Text for the user. `phase` is `final_answer`, or `commentary` for a text that precedes calls."
    about_events: ClassVar[EventTexts] = {
        **TextItem.about_events,
        "response.output_text.delta": "More text of a message.",
        "response.output_text.done": "The text of a message is complete.",
    }
    delta_type = "response.output_text.delta"
    done_type = "response.output_text.done"

    def __init__(self, item_id: str, phase: str, speller: Speller | None) -> None:
        super().__init__(item_id)
        self._phase = phase
        self._scores = None if speller is None else TextScores(speller)
        self._due: list[Item] = []  # log-probabilities to send with the next text

    def score(self, scored: TokenLogprob) -> None:
        if self._scores is not None:
            self._scores.score(scored)

    def item(self, content: list[Item], status: str) -> Item:
        return {
            "id": self.id,
            "type": "message",
            "status": status,
            "role": "assistant",
            "content": content,
            "phase": self._phase,
        }

    def part(self, text: str) -> Item:
        return {"type": "output_text", "annotations": [], "logprobs": self._sent, "text": text}

    def delta(self, text: str) -> tuple[Event, ...]:
        self._take(text)
        return (self._show(text),)

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        events, item = super().close(text, complete=complete)
        events[0]["logprobs"] = self._sent
        return events, item

    @property
    def _sent(self) -> list[Item]:
        return [] if self._scores is None else list(self._scores.sent)

    def _take(self, text: str) -> None:
        """Records text that the model wrote; the shown text may come later and differ."""
        if self._scores is not None:
            self._due += self._scores.show(text)

    def _show(self, text: str) -> Event:
        due, self._due = self._due, []
        return {"type": self.delta_type, "content_index": 0, "delta": text, "logprobs": due}


class CitedMessageBuilder(MessageBuilder):
    """A message whose citations become links and annotations while it streams.

    Its text as the model wrote it has markers such as 【4†L12-L15】. Each that can be resolved becomes a
    link with a url_citation that spans it, or the name of a file with a file_citation. Log-probabilities
    belong to the tokens that the model wrote: a marker's are sent with its link.
    """

    about_events: ClassVar[EventTexts] = {
        **MessageBuilder.about_events,
        "response.output_text.annotation.added": "The text so far cites a page, or a file.",
    }

    def __init__(
        self, item_id: str, phase: str, resolve: Resolve, speller: Speller | None, *, in_json: bool
    ) -> None:
        super().__init__(item_id, phase, speller)
        # A late import: it loads the browser's packages.
        from tools.browser.citations import Citation, CitationRewriter

        self._rewriter, self._citation = CitationRewriter(resolve, in_json=in_json), Citation
        self._shown: list[str] = []
        self._annotations: list[Item] = []

    def part(self, text: str) -> Item:
        return {**super().part(text), "annotations": list(self._annotations)}

    def delta(self, text: str) -> tuple[Event, ...]:
        self._take(text)
        return tuple(self._pieces(self._rewriter.feed(text)))

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        rest = self._pieces(self._rewriter.close())
        events, item = super().close("".join(self._shown), complete=complete)
        return [*rest, *events], item

    def _pieces(self, pieces: list[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            self._shown.append(piece.text)
            events.append(self._show(piece.text))
            if isinstance(piece, self._citation):
                events.append(self._annotate(piece))
        return events

    def _annotate(self, citation: Citation) -> Event:
        annotation = annotation_of(citation)
        self._annotations.append(annotation)
        return {
            "type": "response.output_text.annotation.added",
            "content_index": 0,
            "annotation_index": len(self._annotations) - 1,
            "annotation": annotation,
        }


def _read(item: Item, where: str, conversation: Conversation) -> None:
    """A message; without `role: assistant`, its text is new to the model."""
    role = item.get("role")
    renderer = conversation.renderer
    if "content" not in item:
        raise InvalidRequest.at(f"{where}.content", "is missing.")
    text = text_of(item["content"], f"{where}.content")
    match role:
        case "user":
            conversation.add(renderer.user(text))
        case "developer" | "system":
            conversation.add(renderer.developer_message(text))
        case "assistant":
            phase = item.get("phase")
            if phase not in (None, "commentary", "final_answer"):
                raise InvalidRequest.at(f"{where}.phase", "must be 'commentary' or 'final_answer'.")
            commentary = phase == "commentary" or (phase is None and conversation.before_call)
            if phase != "commentary":  # commentary may precede the approved call's run
                conversation.was_answered()
            written = renderer.preamble(text) if commentary else renderer.answer(text)
            conversation.add(conversation.as_sampled(item) or written)
        case _:
            raise InvalidRequest.at(
                f"{where}.role", f"must be 'user', 'assistant', 'developer' or 'system', not {role!r}."
            )


def _listed(item: Item) -> Item:
    """The full form of a message, which clients may send in shorthand."""
    content = item["content"] if item["content"] is not None else []
    if isinstance(content, str):
        kind = "output_text" if item["role"] == "assistant" else "input_text"
        part = {"type": kind, "text": content}
        content = [{**part, "annotations": [], "logprobs": []} if kind == "output_text" else part]
    return {**item, "content": content, "status": item.get("status") or "completed"}


MESSAGE = ItemKind((ItemType("message", _read, _PREFIX, listed=_listed),))


def message(
    ids: Ids, phase: str, speller: Speller | None, cite: Resolve | None, *, answers_json: bool
) -> ItemBuilder:
    """A message to the user. `cite` resolves citations; with `answers_json`, the answer is JSON."""
    if cite is None:
        return MessageBuilder(ids(_PREFIX), phase, speller)
    in_json = answers_json and phase == "final_answer"
    return CitedMessageBuilder(ids(_PREFIX), phase, cite, speller, in_json=in_json)
