"""What a model answers to one prompt alone: the oracle for batches."""

from inference.engine import Finish
from inference.models.gpt_oss import GptOss
from tests.doubles.inference.driven import Driven


def alone(model: GptOss, prompt: list[int], count: int) -> list[int]:
    """Greedy."""
    cache, last, found = model.new_cache(), prompt, []
    for _ in range(count):
        last = [int(model.all_logits(last, cache)[-1].argmax())]
        found += last
    return found


def check_each_as_alone(engine: Driven, model: GptOss) -> None:
    for client in engine.clients:
        assert client.end is Finish.LENGTH
        assert client.tokens == alone(model, client.prompt, client.limit)
