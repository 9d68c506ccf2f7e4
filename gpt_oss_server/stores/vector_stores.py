"""Records of vector stores, of their files and of passages. `documents/vector_stores` keeps them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Attributes = Mapping[str, str | float | bool]
STATUSES = ("in_progress", "completed", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class VectorStore:
    id: str
    name: str
    created_at: int
    last_active_at: int
    metadata: Mapping[str, Any] = field(default_factory=dict)
    description: str | None = None
    days: int | None = None  # without use, after which it is deleted; None: never
    counts: Mapping[str, int] = field(default_factory=dict)  # of its files, by status; set by the store
    bytes: int = 0  # of the files' texts; set by the store


@dataclass(frozen=True, slots=True)
class Entry:
    """A file of a vector store."""

    file_id: str
    filename: str
    created_at: int
    size: int  # tokens of a passage at most
    overlap: int  # tokens that a passage repeats of the one before
    is_auto: bool  # the client left both to the server
    attributes: Attributes = field(default_factory=dict)
    batch: str = ""
    error: tuple[str, str] | None = None  # code and message
    status: str = "in_progress"  # set by the store, as the next
    bytes: int = 0


@dataclass(frozen=True, slots=True)
class Claimed:
    """A file that this process now reads."""

    position: int
    fence: int
    owner: str
    entry: Entry


@dataclass(frozen=True, slots=True)
class Passage:
    start: int  # in characters of the text
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    entry: Entry
    passage: Passage
    score: float


@dataclass(frozen=True, slots=True)
class Ranking:
    """What a search ranks passages by. Weights that a client chose are never left out in silence."""

    embedding_weight: float = 1.0
    text_weight: float = 1.0
    is_chosen: bool = False
    reranks: bool = True
    least: float = 0.0  # the score below which passages are left out


@dataclass(frozen=True, slots=True)
class Filter:
    """A condition on attributes: `kind` is a comparison, or `and`/`or` of `parts`."""

    kind: str
    key: str = ""
    values: Sequence[str | float | bool] = ()
    parts: Sequence["Filter"] = ()
