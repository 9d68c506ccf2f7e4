"""Gives the passages of vector stores their vectors in the background, a few files at a time.

Takes files that were read, and those that have vectors of another model or none. While the endpoint does not
answer, it is asked again later and later; until then, words find the passages.
"""

import asyncio
import logging

from gpt_oss_server.apis.vector_stores.held import while_held
from gpt_oss_server.embeddings import AT_ONCE, Embeddings, EndpointFailed
from gpt_oss_server.stores.documents.unembedded import Unembedded
from gpt_oss_server.stores.documents.vector_stores import VectorStores
from gpt_oss_server.stores.repeated import Repeated
from gpt_oss_server.stores.vector_stores import Claimed

_LOOK_SECONDS = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 120.0  # seconds before the endpoint is asked again
_FILES = 4  # at a time, as many are short
_PASSAGES = 4 * AT_ONCE  # of one row of vectors
_log = logging.getLogger(__name__)


class Embedding:
    def __init__(self, stores: VectorStores, lease: float) -> None:
        self._embeddings = stores.embeddings
        self._files = Unembedded(stores.database)
        self._lease = lease
        self._pause = _FIRST_PAUSE
        self._has_begun = self._has_failed = False
        self.repeated = Repeated(self.embed_all, _LOOK_SECONDS, "Passages could not be given vectors")

    async def embed_all(self) -> None:
        if (embeddings := self._embeddings) is None:
            if not self._has_begun:
                await self._files.complete_all()
                self._has_begun = True
            return
        self._has_failed = False
        try:
            space = await embeddings.space()
        except EndpointFailed as error:
            self._fail(error)
        else:
            if not self._has_begun:
                await self._files.choose(space)
                self._has_begun = True
            async with asyncio.TaskGroup() as group:
                for _ in range(_FILES):
                    group.create_task(self._embed_some(embeddings, space))
        if self._has_failed:
            await asyncio.sleep(self._pause)
            self._pause = min(2 * self._pause, _LONGEST_PAUSE)
            self.repeated.wake()

    async def _embed_some(self, embeddings: Embeddings, space: str) -> None:
        while not self._has_failed and (claimed := await self._files.claim(space, self._lease)) is not None:
            try:
                await self._embed(embeddings, claimed, space)
                self._pause = _FIRST_PAUSE
            except EndpointFailed as error:
                self._fail(error)
                problem = f"{error} Words find its passages; they get vectors when it answers."
                await self._files.give_back(claimed, ("server_error", problem))
            except asyncio.CancelledError:
                await self._files.give_back(claimed)
                raise

    def _fail(self, error: EndpointFailed) -> None:
        self._has_failed = True
        _log.warning("Passages wait for vectors, and are tried again in %g s. %s", self._pause, error)

    async def _embed(self, embeddings: Embeddings, claimed: Claimed, space: str) -> None:
        last = 0
        while some := await self._files.passages(claimed, last, _PASSAGES):
            places = [place for place, _ in some]
            asked = embeddings.of_passages([text for _, text in some])
            vectors = await while_held(lambda: self._files.hold(claimed, self._lease), self._lease, asked)
            if vectors is None:
                return  # the file was detached
            await self._files.add(claimed, space, places, vectors)
            last = places[-1]
        await self._files.finish(claimed, space)
