"""Vector stores as the API shows them.

Takes bodies and queries. Returns the API's objects, or raises an `ApiError`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from gpt_oss_server.caller.caller import Caller
from gpt_oss_server.content.filters import read_attributes, read_filter
from gpt_oss_server.content.ranking import RankingOptions, check_ranking, read_ranking
from gpt_oss_server.errors import InvalidRequest, NoSuchFile, NotFound
from gpt_oss_server.http.fields import Body, Integer, optional, read_body, required
from gpt_oss_server.http.paging import limit_of, newest_first, shown_page
from gpt_oss_server.http.shared_fields import check_metadata
from gpt_oss_server.http.unserved import FALSE, NotServed
from gpt_oss_server.runs.served import Served, check_stored
from gpt_oss_server.stores.vector_stores import STATUSES, Entry, Found, VectorStore

SIZE, OVERLAP = 800, 400  # tokens, as with OpenAI
_MOST_FILES = 2_000  # of one batch
_MOST_QUERIES, _LONGEST_QUERY = 16, 16_384  # texts, and characters of all: each text has a vector
Shown = dict[str, Any]


class ExpiresAfter(Body):
    anchor: Literal["last_active_at"] = required("From when the days count.")
    days: Annotated[Integer, Field(ge=1, le=365)] = required("Days without use.")


class Static(Body):
    max_chunk_size_tokens: Annotated[Integer, Field(ge=100, le=4096)] = required(
        "Tokens of a passage at most."
    )
    chunk_overlap_tokens: Annotated[Integer, Field(ge=0, le=2048)] = required("Tokens that passages share.")


class Chunking(Body):
    type: Literal["auto", "static"] = required("`auto` is 800 tokens, of which 400 overlap.")
    static: Static | None = optional("For `static`.")


class Attach(Body):
    file_id: str = required("The file.")
    attributes: dict[str, Any] | None = optional("Texts, numbers and booleans to filter by; 16 at most.")
    chunking_strategy: Chunking | None = optional("How the text is cut into passages.")


class AttachMany(Body):
    file_ids: list[str] | None = optional("The files, or `files`.")
    files: list[Attach] | None = optional("The files, each with attributes and chunking of its own.")
    attributes: dict[str, Any] | None = optional("Those of each of `file_ids`.")
    chunking_strategy: Chunking | None = optional("That of each of `file_ids`.")


class UpdateStore(Body):
    name: str | None = optional("A name.")
    expires_after: ExpiresAfter | None = optional("When the store is deleted; by default never.")
    metadata: dict[str, Any] | None = optional("Up to 16 texts that are kept with the store.")


class CreateStore(UpdateStore):
    description: str | None = optional("Kept with the store.")
    file_ids: list[str] | None = optional("The first files.")
    chunking_strategy: Chunking | None = optional("How their texts are cut into passages.")


class UpdateFile(Body):
    attributes: dict[str, Any] | None = required("They replace the present ones.")


class Search(Body):
    not_served: ClassVar[NotServed] = {"rewrite_query": (FALSE, "The query is searched as it is.")}

    query: str | list[str] = required("Words to find, or up to 16 texts of them.")
    filters: dict[str, Any] | None = optional("A condition on the files' attributes.")
    max_num_results: Annotated[Integer, Field(ge=1, le=50)] | None = optional("10 by default.")
    ranking_options: RankingOptions | None = optional("How passages are ranked, and which are left out.")


class StoresApi:
    """The vector stores of one caller."""

    def __init__(self, served: Served, caller: Caller, wake: Callable[[], None]) -> None:
        self._caller = caller
        self._keep = served.stores.of(caller.owner)
        self._stores = self._keep.vector_stores
        self._ids, self._clock, self._wake = served.ids, served.clock, wake

    async def create(self, body: object) -> Shown:
        wanted = read_body(body, CreateStore, '{"name": "Manuals"}')
        check_metadata(wanted.metadata)
        await check_stored(self._caller, self._keep)
        now = self._now()
        days = None if wanted.expires_after is None else wanted.expires_after.days
        fields = (wanted.name or "", now, now, wanted.metadata or {}, wanted.description, days)
        new = VectorStore(self._ids("vs"), *fields)
        files = AttachMany(file_ids=wanted.file_ids or [], chunking_strategy=wanted.chunking_strategy)
        entries = await self._entries(files, "")
        await self._stores.put(new)
        await self._attach(new.id, entries)
        return _shown(await self.find(new.id))

    async def find(self, store_id: str) -> VectorStore:
        if (store := await self._stores.get(store_id)) is None:
            problem = f"There is no vector store {store_id!r:.100}. It may have expired, or been deleted."
            raise NotFound(problem, param="vector_store_id")
        return store

    def _now(self) -> int:
        return int(self._clock())

    async def retrieve(self, store_id: str) -> Shown:
        return _shown(await self.find(store_id))

    async def update(self, store_id: str, body: object) -> Shown:
        wanted, store = read_body(body, UpdateStore, '{"name": "Manuals"}'), await self.find(store_id)
        check_metadata(wanted.metadata)
        changes: dict[str, Any] = wanted.model_dump(include={"name", "metadata"}, exclude_none=True)
        if "expires_after" in wanted.model_fields_set:
            changes["days"] = None if wanted.expires_after is None else wanted.expires_after.days
        await self._stores.put(replace(store, last_active_at=self._now(), **changes))
        return await self.retrieve(store_id)

    async def listed(self, query: Mapping[str, str]) -> Shown:
        most, after = limit_of(query), query.get("after")
        found = await self._stores.page(after, most + 1, newest_first=newest_first(query))
        return shown_page(found, most, after, _shown)

    async def delete(self, store_id: str) -> Shown:
        if not await self._stores.delete(store_id):
            await self.find(store_id)
        return {"id": store_id, "object": "vector_store.deleted", "deleted": True}

    async def search(self, store_id: str, body: object) -> Shown:
        wanted, store = read_body(body, Search, '{"query": "tides"}'), await self.find(store_id)
        queries = [wanted.query] if isinstance(wanted.query, str) else wanted.query
        if len(queries) > _MOST_QUERIES or sum(map(len, queries)) > _LONGEST_QUERY:
            bounds = f"{_MOST_QUERIES} texts, of {_LONGEST_QUERY:,} characters together,"
            raise InvalidRequest.at("query", f"may have {bounds} at most.")
        ranking = read_ranking(wanted.ranking_options, "ranking_options")
        embeds = self._stores.embeddings is not None
        check_ranking(ranking, embeds=embeds, param="ranking_options.hybrid_search")
        filters, most = read_filter(wanted.filters, "filters"), wanted.max_num_results or 10
        found = await self._stores.find([store_id], queries, most, filters, ranking)
        await self._stores.used(store, self._now())
        return {
            "object": "vector_store.search_results.page",
            "search_query": queries,
            "data": [_result(each) for each in found],
            "has_more": False,
            "next_page": None,
        }

    # --- files ---------------------------------------------------------------------------------------

    async def attach(self, store_id: str, body: object) -> Shown:
        wanted = read_body(body, Attach, '{"file_id": "file_…"}')
        await self._attach(store_id, await self._entries(AttachMany(files=[wanted]), ""))
        return await self.file(store_id, wanted.file_id)

    async def attach_many(self, store_id: str, body: object) -> Shown:
        wanted, batch = read_body(body, AttachMany, '{"file_ids": ["file_…"]}'), self._ids("vsfb")
        if not (entries := await self._entries(wanted, batch)):
            raise InvalidRequest.at("file_ids", "is empty: name at least one file.")
        await self._attach(store_id, entries)
        return await self.batch(store_id, batch)

    async def files_of_batch(self, store_id: str, batch_id: str, query: Mapping[str, str]) -> Shown:
        await self.batch(store_id, batch_id)
        return await self.files(store_id, query, batch_id)

    async def files(self, store_id: str, query: Mapping[str, str], batch: str = "") -> Shown:
        await self.find(store_id)
        most, after, status = limit_of(query), query.get("after"), query.get("filter")
        if status not in (None, *STATUSES):
            raise InvalidRequest.at("filter", f"must be one of {', '.join(STATUSES)}.")
        order = newest_first(query)
        found = await self._stores.entries(
            store_id, after, most + 1, newest_first=order, status=status, batch=batch
        )
        return shown_page(found, most, after, lambda entry: _file(store_id, entry))

    async def file(self, store_id: str, file_id: str) -> Shown:
        return _file(store_id, await self._entry(store_id, file_id))

    async def set_attributes(self, store_id: str, file_id: str, body: object) -> Shown:
        wanted = read_body(body, UpdateFile, '{"attributes": {"year": 2026}}')
        attributes = read_attributes(wanted.attributes, "attributes")
        await self._stores.set_attributes(store_id, file_id, attributes)
        return await self.file(store_id, file_id)

    async def content(self, store_id: str, file_id: str) -> Shown:
        await self._entry(store_id, file_id)
        _, text = await self._stores.text([store_id], file_id) or (None, "")
        data = [{"type": "text", "text": text}] if text else []
        kind = "vector_store.file_content.page"
        return {"object": kind, "data": data, "has_more": False, "next_page": None}

    async def detach(self, store_id: str, file_id: str) -> Shown:
        await self._entry(store_id, file_id)
        await self._stores.detach(store_id, file_id)
        return {"id": file_id, "object": "vector_store.file.deleted", "deleted": True}

    async def batch(self, store_id: str, batch_id: str) -> Shown:
        await self.find(store_id)
        counts = await self._stores.batch(store_id, batch_id)
        first = await self._stores.entries(store_id, None, 1, newest_first=False, status=None, batch=batch_id)
        if not counts or not first:
            problem = f"There is no batch {batch_id!r:.100} in this vector store."
            raise NotFound(problem, param="batch_id")
        ended = "cancelled" if counts.get("cancelled") else "completed"
        return {
            "id": batch_id,
            "object": "vector_store.files_batch",
            "created_at": first[0].created_at,
            "vector_store_id": store_id,
            "status": "in_progress" if counts.get("in_progress") else ended,
            "file_counts": _counts(counts),
        }

    async def cancel(self, store_id: str, batch_id: str) -> Shown:
        await self._stores.cancel(store_id, batch_id)
        return await self.batch(store_id, batch_id)

    async def _attach(self, store_id: str, entries: Sequence[Entry]) -> None:
        store = await self.find(store_id)
        await check_stored(self._caller, self._keep)
        await self._stores.attach(store_id, entries)
        await self._stores.put(replace(store, last_active_at=self._now()))
        self._wake()

    async def _entries(self, wanted: AttachMany, batch: str) -> list[Entry]:
        shared: dict[str, Any] = wanted.model_dump(include={"attributes", "chunking_strategy"})
        files = [*(wanted.files or []), *(Attach(file_id=each, **shared) for each in wanted.file_ids or [])]
        if len(files) > _MOST_FILES:
            raise InvalidRequest(f"A batch may have {_MOST_FILES:,} files at most.", param="file_ids")
        return [await self._new(file, batch) for file in files]

    async def _new(self, wanted: Attach, batch: str) -> Entry:
        file = await self._keep.files.get(wanted.file_id)
        if file is None:
            problem = f"There is no file {wanted.file_id!r:.100}. Upload it to /v1/files."
            raise NoSuchFile(problem, param="file_id")
        static = wanted.chunking_strategy.static if wanted.chunking_strategy else None
        size, overlap = (
            (SIZE, OVERLAP) if static is None else (static.max_chunk_size_tokens, static.chunk_overlap_tokens)
        )
        if overlap > size // 2:
            where = "chunking_strategy.static.chunk_overlap_tokens"
            raise InvalidRequest.at(where, "may be half of a passage at most.")
        attributes = read_attributes(wanted.attributes, "attributes")
        return Entry(file.id, file.filename, self._now(), size, overlap, static is None, attributes, batch)

    async def _entry(self, store_id: str, file_id: str) -> Entry:
        await self.find(store_id)
        if (entry := await self._stores.entry(store_id, file_id)) is None:
            raise NoSuchFile(f"The vector store has no file {file_id!r:.100}.", param="file_id")
        return entry


def _counts(counts: Mapping[str, int]) -> dict[str, int]:
    return {**{status: counts.get(status, 0) for status in STATUSES}, "total": sum(counts.values())}


def _shown(store: VectorStore) -> Shown:
    expires = None if store.days is None else {"anchor": "last_active_at", "days": store.days}
    return {
        "id": store.id,
        "object": "vector_store",
        "created_at": store.created_at,
        "name": store.name,
        "description": store.description,
        "usage_bytes": store.bytes,
        "file_counts": _counts(store.counts),
        "status": "in_progress" if store.counts.get("in_progress") else "completed",
        "expires_after": expires,
        "expires_at": None if store.days is None else store.last_active_at + store.days * 86_400,
        "last_active_at": store.last_active_at,
        "metadata": dict(store.metadata),
    }


def _file(store_id: str, entry: Entry) -> Shown:
    static = {"max_chunk_size_tokens": entry.size, "chunk_overlap_tokens": entry.overlap}
    return {
        "id": entry.file_id,
        "object": "vector_store.file",
        "created_at": entry.created_at,
        "vector_store_id": store_id,
        "status": entry.status,
        "usage_bytes": entry.bytes,
        "last_error": entry.error and dict(zip(("code", "message"), entry.error, strict=True)),
        "attributes": dict(entry.attributes),
        "chunking_strategy": {"type": "static", "static": static},
    }


def _result(found: Found) -> Shown:
    return {
        "file_id": found.entry.file_id,
        "filename": found.entry.filename,
        "score": found.score,
        "attributes": dict(found.entry.attributes),
        "content": [{"type": "text", "text": found.passage.text}],
    }
