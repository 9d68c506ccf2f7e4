"""A real llama-server as the endpoint of embeddings, with the weights of the embedded model."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gpt_oss_server.embeddings import AT_ONCE, Embeddings, EndpointFailed
from gpt_oss_server.settings import Settings
from inference import tiny
from inference.config import read_config
from tests.doubles.engines.live import exported, found_llama_server, llama_server
from tests.doubles.stored import known

pytestmark = [pytest.mark.engines, pytest.mark.anyio]
LLAMA = found_llama_server()
READS = 64  # tokens of a text


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if LLAMA is None:
        pytest.skip("no llama-server: set LLAMA_SERVER to its path")
    return exported(tiny.checkpoint(), tmp_path_factory.mktemp("model") / "tiny.gguf")


@pytest.fixture(scope="module")
def url(model: Path) -> Iterator[str]:
    flags = ("--embedding", "--pooling", "mean", "-ub", str(READS), "-b", str(READS))
    with llama_server(known(LLAMA), model, *flags) as (url, _):
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


async def test_a_server_without_embeddings_is_a_sentence(model: Path) -> None:
    fails = pytest.raises(EndpointFailed, match="does not support embed")
    with llama_server(known(LLAMA), model) as (url, _), fails:
        await Embeddings(Settings(embeddings=url)).space()
