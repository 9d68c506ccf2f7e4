"""However SGLang cuts a stream into chunks, and whichever of them repeat tokens, the tokens are the same."""

from hypothesis import given
from hypothesis import strategies as st

from inference.backends.sglang import SglangEventReader
from inference.engine import Sampling
from inference.remote.wire import Ask

ASK = Ask(Sampling(logprobs=1), 0, 1)
LENGTH = 3  # of the prompt
SIZES = st.lists(st.integers(0, 4), min_size=1, max_size=12)


def chunk(tokens: list[int], begin: int, end: int, count: int) -> dict[str, object]:
    """The tokens from `begin` to `end`, of which the chunk counts those up to `count`."""
    found = tokens[begin:end]
    meta = {
        "prompt_tokens": LENGTH,
        "completion_tokens": count,
        "cached_tokens": 2,
        "output_token_logprobs": [[-0.5, token, None] for token in found],
        "output_top_logprobs": [[[-0.5, token, None]] for token in found],
    }
    return {"output_ids": found, "meta_info": meta}


@given(SIZES, st.booleans(), st.lists(st.integers(0, 3), min_size=12, max_size=12))
def test_chunks_of_any_size_give_all_tokens_once(sizes: list[int], repeats: bool, ahead: list[int]) -> None:
    """`ahead` is how many tokens a chunk that repeats has beyond its count."""
    tokens = list(range(100, 100 + sum(sizes)))
    reader = SglangEventReader("http://127.0.0.1:1", LENGTH, ASK)
    read: list[int] = []
    scored: list[int] = []
    end = 0
    for size, more in zip(sizes, ahead, strict=False):
        begin, end = end, end + size
        shown = min(end + more, len(tokens)) if repeats else end
        piece = reader.read(chunk(tokens, 0 if repeats else begin, shown, end))
        read += piece.tokens
        scored += [each.token for each in piece.logprobs or ()]
        assert piece.cached_tokens == (2 if len(read) == len(piece.tokens) else 0)
    assert read == scored == tokens
