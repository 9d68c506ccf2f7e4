"""The values of figures: counts, gauges and histograms, each by its labels, however they are written out."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Labels = tuple[str, ...]


@dataclass(slots=True)
class Histogram:
    """How many observations fell between any two bounds, and their sum."""

    counts: list[int]
    sum: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Figure:
    """One figure of the server: a row of the table."""

    name: str  # without the prefix, and without Prometheus' `_total`
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: Labels = ()
    bounds: tuple[float, ...] = ()  # of a histogram's buckets, the last without a bound left out

    def empty(self) -> Histogram:
        """A histogram without observations."""
        return Histogram([0] * (len(self.bounds) + 1))


Value = float | Histogram


@dataclass(slots=True)
class Figures:
    """The values of all figures that are counted when something happens."""

    _numbers: dict[Figure, dict[Labels, float]] = field(default_factory=dict)
    _histograms: dict[Figure, dict[Labels, Histogram]] = field(default_factory=dict)

    def add(self, figure: Figure, amount: float = 1, labels: Labels = ()) -> None:
        of_figure = self._numbers.setdefault(figure, {})
        of_figure[labels] = of_figure.get(labels, 0) + amount

    def observe(self, figure: Figure, value: float, labels: Labels = ()) -> None:
        histogram = self.histogram(figure, labels)
        histogram.counts[bisect_left(figure.bounds, value)] += 1
        histogram.sum += value

    def observe_gaps(self, figure: Figure, times: array[float], labels: Labels) -> None:
        """Observes the differences between neighbours: for times, of which there are many."""
        if len(times) < 2:
            return
        import numpy as np  # not before it is used: it would lengthen every start

        histogram = self.histogram(figure, labels)
        places = np.searchsorted(figure.bounds, np.diff(np.frombuffer(times)))
        for place, count in enumerate(np.bincount(places).tolist()):
            histogram.counts[place] += count
        histogram.sum += times[-1] - times[0]

    def histogram(self, figure: Figure, labels: Labels) -> Histogram:
        """It begins empty."""
        return self._histograms.setdefault(figure, {}).setdefault(labels, figure.empty())

    def values(self, figure: Figure) -> Mapping[Labels, Value]:
        """By labels. A figure without labels has a value before anything happened."""
        if figure.kind == "histogram":
            return self._histograms.get(figure) or ({} if figure.labels else {(): figure.empty()})
        return self._numbers.get(figure) or ({} if figure.labels else {(): 0})
