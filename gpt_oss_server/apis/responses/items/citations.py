"""A message whose citations become links and annotations while it streams.

Takes the text as the model wrote it, with markers such as 【4†L12-L15】. Returns a message item in which each
resolvable marker is a link, with a url_citation that spans it. Log-probabilities belong to the tokens that
the model wrote: a marker's are sent with its link.
"""

from __future__ import annotations

from typing import ClassVar

from gpt_oss_server.apis.responses.items.builders import MessageBuilder
from gpt_oss_server.content.logprobs import Scores
from gpt_oss_server.items.builder import Event, EventTexts, Item
from tools.browser.citations import Citation, CitationRewriter, Piece, Resolve


class CitedMessageBuilder(MessageBuilder):
    about_events: ClassVar[EventTexts] = {
        **MessageBuilder.about_events,
        "response.output_text.annotation.added": "The text so far cites a page that the browser read.",
    }

    def __init__(
        self,
        item_id: str,
        phase: str,
        resolve: Resolve,
        scores: Scores | None = None,
        *,
        in_json: bool = False,
    ) -> None:
        super().__init__(item_id, phase, scores)
        self._rewriter = CitationRewriter(resolve, in_json=in_json)
        self._shown: list[str] = []
        self._annotations: list[Item] = []

    def part(self, text: str) -> Item:
        return {**super().part(text), "annotations": list(self._annotations)}

    def delta(self, text: str) -> tuple[Event, ...]:
        self._take(text)
        return tuple(self._events_of(self._rewriter.feed(text)))

    def close(self, text: str, *, complete: bool) -> tuple[list[Event], Item]:
        rest = self._events_of(self._rewriter.close())
        events, item = super().close("".join(self._shown), complete=complete)
        return [*rest, *events], item

    def _events_of(self, pieces: list[Piece]) -> list[Event]:
        events: list[Event] = []
        for piece in pieces:
            self._shown.append(piece.text)
            events.append(self._show(piece.text))
            if isinstance(piece, Citation):
                events.append(self._annotate(piece))
        return events

    def _annotate(self, citation: Citation) -> Event:
        annotation = {
            "type": "url_citation",
            "start_index": citation.start_index,
            "end_index": citation.end_index,
            "url": citation.url,
            "title": citation.title,
        }
        self._annotations.append(annotation)
        return {
            "type": "response.output_text.annotation.added",
            "content_index": 0,
            "annotation_index": len(self._annotations) - 1,
            "annotation": annotation,
        }
