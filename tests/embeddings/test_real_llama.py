"""A real llama-server as the endpoint of embeddings, with the weights of the embedded model."""

import asyncio
from collections.abc import Iterator

import numpy as np
import pytest

from gpt_oss_server.embeddings import AT_ONCE, Embeddings, EndpointFailed
from gpt_oss_server.settings import Settings
from inference import tiny
from inference.config import read_config
from tests.doubles.engines.live import exported, found_llama_server, llama_server

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
LLAMA = found_llama_server()
READS = 64  # tokens of a text


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    if LLAMA is None:
        pytest.skip("no llama-server: set LLAMA_SERVER to its path")
    model = exported(tiny.checkpoint(), tmp_path_factory.mktemp("model") / "tiny.gguf")
    flags = ("--embedding", "--pooling", "mean", "-ub", str(READS), "-b", str(READS))
    with llama_server(LLAMA, model, *flags) as (url, _):
        yield f"{url}/v1"


async def test_it_embeds_batches_and_texts_longer_than_it_reads(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    own = Embeddings(Settings(embeddings=url))
    hidden = read_config(tiny.checkpoint() / "config.json").hidden
    assert (await own.space()).endswith(f"tiny.gguf {hidden}")
    texts = [f"Boat {number} leaves the harbour." for number in range(2 * AT_ONCE)]
    many = await own.of_passages(texts)
    one = np.concatenate([await own.of_queries([text]) for text in texts[:3]])
    assert np.abs(many[:3] - one).max() < 0.01
    [long] = await own.of_passages(["The tide comes in at three. " * 60])
    assert np.linalg.norm(long) == pytest.approx(1, abs=1e-5)
    assert "those of over" in caplog.text


async def test_a_server_without_embeddings_is_a_sentence(tmp_path_factory: pytest.TempPathFactory) -> None:
    if LLAMA is None:
        pytest.skip("no llama-server: set LLAMA_SERVER to its path")
    model = await asyncio.to_thread(
        exported, tiny.checkpoint(), tmp_path_factory.mktemp("model") / "tiny.gguf"
    )
    with (
        llama_server(LLAMA, model) as (url, _),
        pytest.raises(EndpointFailed, match="does not support embed"),
    ):
        await Embeddings(Settings(embeddings=url)).space()
