"""Spans of OpenTelemetry, kept in memory."""

from __future__ import annotations

from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter


class Spans:
    """Pass `provider` to `create_app`."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.provider = TracerProvider()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    @property
    def ended(self) -> Sequence[ReadableSpan]:
        return self._exporter.get_finished_spans()

    def named(self, name: str) -> list[ReadableSpan]:
        return sorted(
            (each for each in self.ended if each.name == name), key=lambda span: span.start_time or 0
        )

    def one(self, name: str) -> ReadableSpan:
        [span] = self.named(name)
        return span

    def tree(self) -> dict[str, list[str]]:
        """The names of each span's children, in the order in which they began; spans of one name together."""
        names = {span.context.span_id: span.name for span in self.ended}
        found: dict[str, list[str]] = {}
        for span in sorted(self.ended, key=lambda each: each.start_time or 0):
            parent = (
                "" if span.parent is None else names.get(span.parent.span_id, f"{span.parent.span_id:016x}")
            )
            found.setdefault(parent, []).append(span.name)
        return found


def attributes(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})
