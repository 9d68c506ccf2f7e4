"""The routes of vector stores: they translate between HTTP and `StoresApi`."""

from fastapi import APIRouter

from gpt_oss_server.apis.vector_stores.embedding import Embedding
from gpt_oss_server.apis.vector_stores.ingestion import Ingestion
from gpt_oss_server.apis.vector_stores.stores import (
    Attach,
    AttachMany,
    CreateStore,
    Search,
    StoresApi,
    UpdateFile,
    UpdateStore,
)
from gpt_oss_server.http.routes import Route, add_routes
from gpt_oss_server.runs.served import Served

_STORE, _FILE, _BATCH = "/{store}", "/{store}/files/{file}", "/{store}/file_batches/{batch}"


def vector_stores_router(served: Served) -> APIRouter:
    router = APIRouter(prefix="/v1/vector_stores")
    lease = served.settings.background_lease
    embedding = Embedding(served.stores.vector_stores, lease)
    ingestion = Ingestion(served.stores, lease, embedding.repeated.wake)
    served.stores.repeated.extend((ingestion.repeated, embedding.repeated))
    add_routes(
        router,
        served.settings,
        lambda caller: StoresApi(served, caller, ingestion.repeated.wake),
        Route("POST", "", StoresApi.create, CreateStore),
        Route("GET", "", StoresApi.listed, lists=True),
        Route("GET", _STORE, StoresApi.retrieve),
        Route("POST", _STORE, StoresApi.update, UpdateStore),
        Route("DELETE", _STORE, StoresApi.delete),
        Route("POST", f"{_STORE}/search", StoresApi.search, Search),
        Route("GET", f"{_STORE}/files", StoresApi.files, lists=True),
        Route("POST", f"{_STORE}/files", StoresApi.attach, Attach),
        Route("GET", _FILE, StoresApi.file),
        Route("POST", _FILE, StoresApi.set_attributes, UpdateFile),
        Route("DELETE", _FILE, StoresApi.detach),
        Route("GET", f"{_FILE}/content", StoresApi.content),
        Route("POST", f"{_STORE}/file_batches", StoresApi.attach_many, AttachMany),
        Route("GET", _BATCH, StoresApi.batch),
        Route("POST", f"{_BATCH}/cancel", StoresApi.cancel),
        Route("GET", f"{_BATCH}/files", StoresApi.files_of_batch, lists=True),
    )
    return router
