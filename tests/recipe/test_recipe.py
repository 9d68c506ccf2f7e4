"""The recipe: the content of conversations, their tokens, and the rounding of weights."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch

from gpt_oss_server.harmony.encoding import load_encoding
from gpt_oss_server.harmony.render import FunctionTool
from inference.ops.reference import dequantise_mxfp4
from inference.tiny.codes import VOCABULARY, codes_of, own_codes
from recipe.evaluation.outcome import Outcome, outcome, same_call
from recipe.functions.tool_stock import Offer, Request, words_of_wording
from recipe.functions.tool_thoughts import choosing, declining
from recipe.network.attention import sink_attention
from recipe.network.quantise import pack, straight_through, unpack
from recipe.skills.data import SKILLS, make_talk
from recipe.text.talk import PAST, RETURN, START, Talk, Value, answer, json_object, write
from recipe.text.vocabulary import encode, ids_by_bytes, pieces_of, token_bytes, token_table, without_space
from recipe.text.words import Words, is_held_out, natural_values
from recipe.training.batches import packed
from recipe.training.export import export, weights_of
from recipe.training.export import main as export_command
from recipe.training.trainer import Trainer
from tests.doubles.recipe import FEW_HEADS, talk_of

decode = load_encoding().decode


@pytest.mark.parametrize("skill", SKILLS)
@pytest.mark.parametrize("held_out", [False, True])
def test_every_generation_of_the_stock_is_strict_harmony(skill: str, held_out: bool) -> None:
    for seed in range(12):
        talk = talk_of(skill, seed, held_out)
        for turn in talk.turns:
            if turn.kind == PAST:
                continue
            prompt = decode(talk.tokens[: turn.start])
            assert prompt.endswith("<|start|>assistant")
            found = outcome(talk.tokens[turn.start : turn.end], prompt)
            assert found is not None, decode(talk.tokens)
            assert all(text in found.answer for text in turn.must)


def test_a_conversation_ends_with_its_only_stop() -> None:
    for seed in range(60):
        tokens = talk_of(list(SKILLS)[seed % len(SKILLS)], seed).tokens
        assert RETURN not in tokens[:-1]


def test_conversations_are_the_same_for_the_same_seed() -> None:
    assert make_talk(Random("a"), 0.5).tokens == make_talk(Random("a"), 0.5).tokens


def test_no_held_out_word_is_drawn_for_training() -> None:
    rng = Random(1)
    words, held_out = Words(rng, False), Words(rng, True)
    assert not any(is_held_out(words.lower()) or is_held_out(words.capital()) for _ in range(500))
    assert all(is_held_out(held_out.lower()) and is_held_out(held_out.capital()) for _ in range(500))


@pytest.mark.parametrize("word", [" Oslo", " Copenhagen", " report", " können"])
def test_the_pieces_of_a_word_spell_it_without_its_space(word: str) -> None:
    pieces = without_space(ids_by_bytes()[word.encode()])
    assert b"".join(token_bytes()[piece] for piece in pieces) == word[1:].encode()


def test_words_split_into_the_fewest_pieces() -> None:
    pieces = pieces_of(b"Oslo")
    assert pieces is not None
    assert len(pieces) == 2


@pytest.mark.parametrize("bare", [True, False])
@pytest.mark.parametrize("text", ["Oslo", "New York", "quarterly_sales.xlsx", "naïve Ürün", "12.5", "a@b.io"])
def test_a_copied_value_reads_like_its_source(text: str, bare: bool) -> None:
    value = Value(text, bare)
    assert decode(write("in {v}.", {"v": value})) == f"in {text}."
    assert decode(write('say "{v}"', {"v": value})) == f'say "{text}"'
    fields = [("city", value, True), ("days", Value("3"), False), ("on", Value("true", False), False)]
    assert json.loads(decode(json_object(fields))) == {"city": text, "days": 3, "on": True}


@pytest.mark.parametrize("text", ["/etc/hosts", "costs", "-5", "“So” it is", "Ürün", "...", "Otieno"])
def test_a_quoted_value_is_copied_with_its_tokens_after_the_quote(text: str) -> None:
    _, _, *after = encode(f'Open "{text}')  # "Open", the quote with the text right after it, the others
    copied = Value(text, bare=False).unspaced()
    assert decode(copied) == text
    assert copied[len(copied) - len(after) :] == after


def test_a_part_of_a_name_has_the_piece_of_its_word() -> None:
    table, known = token_table(), ids_by_bytes()
    first = {text: table.pieces[known[text], 0] for text in (b"weather", b" weather", b"_weather")}
    assert set(first.values()) == {known[b"weather"]}
    own = own_codes(table, np.array([known[text] for text in first], dtype=np.int32))
    assert len(np.unique(own, axis=0)) == 3


def test_a_words_second_piece_is_where_other_tokens_have_their_own_code() -> None:
    table = token_table()
    word = np.array([ids_by_bytes()[b" Oslo"]], dtype=np.int32)
    piece = table.pieces[word, 1]
    assert (own_codes(table, word) == own_codes(table, piece)).all()


@pytest.mark.parametrize(
    ("word", "part", "place"),
    [
        (" pollen", "ollen", 1),
        (" forecast", "_fore", 0),
        (" forecast", "cast", 1),
        ("Podcast", " podcast", 0),
    ],
)
def test_a_word_is_found_in_a_name_that_is_cut_elsewhere(word: str, part: str, place: int) -> None:
    table, known = token_table(), ids_by_bytes()
    edges = table.edges[[known[word.encode()], known[part.encode()]], place]
    assert edges[0] == edges[1] >= 0


def test_no_natural_value_is_of_both_parts() -> None:
    for kind in ("person", "city", "word", "query", "title", "sentence", "file"):
        seen, held_out = natural_values(kind, False), natural_values(kind, True)
        assert seen
        assert held_out
        assert not set(seen) & set(held_out)


@pytest.mark.training
def test_a_run_resumes_from_its_checkpoint_and_ends_with_one_optimiser(tmp_path: Path) -> None:
    shape = FEW_HEADS
    run = Trainer(tmp_path, shape, 1)
    batch = packed([talk_of("call", 1)], run.learned, np.random.default_rng(0), 0.3)
    first = run.train(batch, 0.1)["own"]
    assert len(run.optimisers) == 2
    run.save()
    run = Trainer(tmp_path, shape, 1)
    assert run.step == 1
    for _ in range(8):
        last = run.train(batch, 0.1)["own"]
    assert last < first / 2
    run.train(batch, 0.9)
    assert len(run.optimisers) == 1
    run.save()
    assert len(Trainer(tmp_path, shape, 1).optimisers) == 1


@pytest.mark.training
def test_an_export_is_the_mean_of_the_last_steps(tmp_path: Path) -> None:
    shape = FEW_HEADS
    run = Trainer(tmp_path, shape, 1)
    batch = packed([talk_of("call", 1)], run.learned, np.random.default_rng(0), 0.3)
    seen: list[torch.Tensor] = []
    for step in range(5):
        if step == 3:  # a resumed run continues its mean
            run.save()
            run = Trainer(tmp_path, shape, 1)
        run.train(batch, 0.9)
        seen.append(run.model.norm.detach().clone())
    run.save()
    wanted = torch.stack(seen).mean(0)
    assert (seen[-1] - wanted).norm() > 1e-3
    assert torch.allclose(weights_of(run.file)[0]["norm"], wanted, atol=1e-5)
    first, second = tmp_path / "first.safetensors", tmp_path / "second.safetensors"
    export(run.file, first)
    assert torch.allclose(weights_of(first)[0]["norm"], wanted, atol=0.01)
    run.train(batch, 0.9)
    run.save()
    export(run.file, second, earlier=[first])
    both = (wanted + run.average.weights["norm"]) / 2
    assert torch.allclose(weights_of(second)[0]["norm"], both, atol=0.01)
    export(run.file, second, earlier=[first], share=[0.0])
    assert torch.allclose(weights_of(second)[0]["norm"], wanted, atol=0.01)
    run.train(batch, 0.5)  # more time: rates are high again, and the old mean is outdated
    run.save()
    assert torch.equal(weights_of(run.file)[0]["norm"], run.model.norm)
    run.train(batch, 0.9)
    assert torch.equal(run.average.weights["norm"], run.model.norm)


@pytest.mark.parametrize("missing", ["checkpoint.pt", "earlier.safetensors"])
def test_exporting_names_the_missing_file(
    missing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if missing != "checkpoint.pt":
        (tmp_path / "checkpoint.pt").touch()
    given = ["--folder", str(tmp_path), "--mean-with", str(tmp_path / "earlier.safetensors")]
    monkeypatch.setattr(sys, "argv", ["export", *given])
    with pytest.raises(SystemExit):
        export_command()
    assert f"{tmp_path / missing} does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("code", "right"),
    [
        ("print(2 + 40)", True),
        ("print(40+2)", True),
        ("print((2 + 40))", True),
        ("print(2 * 40)", False),
        ("print(2 + 40", False),
        ("print(open('x'))", False),
        ("print('4' + '2')", False),
        ("print(9 ** 9 ** 9)", False),
        ("print(1 / 0)", False),
        ("42", False),
    ],
)
def test_code_is_right_if_it_prints_the_expected_result(code: str, right: bool) -> None:
    assert same_call(Outcome("python", code), Outcome("python", "print(2 + 40)")) is right


def offered(name: str, text: str, purpose: str | None = None) -> tuple[Request, Offer]:
    request = Request(FunctionTool(name, purpose, None), text, (), (), words_of_wording(text))
    return request, Offer(request.tool, lambda: request)


def test_the_next_role_is_no_target() -> None:
    talk = make_talk(Random(3), 0.9)
    batch = packed([talk] * 2, np.arange(2000, dtype=np.int64), np.random.default_rng(0), 1.0)
    prompts = batch.turns < 0
    assert prompts.any()
    before = batch.candidates[batch.tokens[batch.rows, batch.columns]]
    assert START not in before[prompts]
    assert START not in batch.candidates[batch.targets[prompts]]


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_the_thought_considers_one_function_after_the_other(effort: str) -> None:
    request, wanted = offered("set_timer", "Set a timer")
    _, other = offered(
        "get_weather", "Is it raining?", "The weather of a city. Not for the sea.\nTakes a city."
    )
    _, later = offered("play_song", "Play a song")
    thought = decode(choosing(effort, request, [other, wanted, later]))
    begins = "The user needs a tool. The weather of a city: get_weather? no, "
    assert f"{begins}set_timer? yes, so set_timer fits" in thought
    assert f"{begins}but none" in decode(declining(effort, [other]))


def test_codes_are_signs_and_differ() -> None:
    codes = codes_of(np.arange(VOCABULARY, dtype=np.int32))
    assert set(np.unique(codes)) == {-1.0, 1.0}
    assert len(np.unique(codes, axis=0)) == VOCABULARY
    assert not codes_of(np.array([-1], dtype=np.int32)).any()


def test_packed_weights_equal_those_of_training() -> None:
    weight = torch.randn(3, 64, 96) * torch.logspace(-3, 1, 96)
    blocks, scales = pack(weight)
    assert blocks.shape == (3, 64, 3, 16)
    assert torch.equal(unpack(blocks, scales), straight_through(weight))
    assert torch.equal(unpack(blocks, scales), dequantise_mxfp4(blocks, scales, torch.float32))
    assert (unpack(blocks, scales) - weight).norm() / weight.norm() < 0.15


def test_gradients_pass_the_rounding() -> None:
    weight = torch.randn(32, 64, requires_grad=True)
    (straight_through(weight) * 3).sum().backward()
    assert weight.grad is not None
    assert torch.equal(weight.grad, torch.full_like(weight, 3))


@pytest.mark.parametrize(("length", "window"), [(40, None), (40, 16), (300, None), (300, 16), (300, 150)])
def test_attention_and_its_gradients_match_the_definition(length: int, window: int | None) -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(2, length, heads, 32, requires_grad=True) for heads in (6, 2, 2)]
    sinks, weights = torch.randn(6, requires_grad=True), torch.randn(2, length, 6 * 32)
    found = sink_attention(*inputs, sinks, window)
    wanted = plain_attention(*inputs, sinks, window)
    assert torch.allclose(found, wanted, atol=1e-5)
    ours = torch.autograd.grad(found, [*inputs, sinks], weights)
    theirs = torch.autograd.grad(wanted, [*inputs, sinks], weights)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(ours, theirs, strict=True))


def plain_attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, sinks: torch.Tensor, window: int | None
) -> torch.Tensor:
    q, k, v = (x.transpose(1, 2) for x in (q, k, v))
    k, v = (x.repeat_interleave(3, dim=1) for x in (k, v))
    place = torch.arange(q.shape[2])
    behind = place[:, None] - place[None, :]
    hidden = (behind < 0) | (behind >= (window or len(place)))
    scores = (q @ k.mT * q.shape[-1] ** -0.5).masked_fill(hidden, -torch.inf)
    with_sink = torch.cat((scores, sinks.view(1, -1, 1, 1).expand(*scores.shape[:3], 1)), dim=-1)
    return (with_sink.softmax(-1)[..., :-1] @ v).transpose(1, 2).flatten(2)


def test_a_batch_has_every_token_of_the_models_turns() -> None:
    talks = [make_talk(Random(seed), 0.9) for seed in range(3)]
    batch = packed(talks, np.arange(2000, dtype=np.int64), np.random.default_rng(0), 0.0)
    wanted = [token for talk in talks for turn in talk.turns for token in talk.tokens[turn.start : turn.end]]
    assert sorted(batch.candidates[batch.targets].tolist()) == sorted(wanted)
    before = batch.tokens[batch.rows, batch.columns]
    assert set(batch.candidates[before].tolist()) <= {token for talk in talks for token in talk.tokens}


def test_the_softmax_has_every_targets_twin() -> None:
    talks = [make_talk(Random(seed), 0.9) for seed in range(3)]
    batch = packed(talks, np.arange(2000, dtype=np.int64), np.random.default_rng(0), 0.3)
    assert len(set(batch.candidates.tolist())) == len(batch.candidates)
    assert np.isfinite(batch.prior).all()
    known = ids_by_bytes()
    held = set(batch.candidates.tolist())
    spelled = [
        token_bytes()[token] for token in batch.candidates[batch.targets] if token < len(token_bytes())
    ]
    twins = [known[b" " + text] for text in spelled if text.isalpha() and b" " + text in known]
    assert twins
    assert held.issuperset(twins)


def test_the_header_of_a_past_message_is_no_target() -> None:
    talk = Talk("chat")
    for _ in range(3):  # repeated, so that every pair of tokens occurs again
        talk.user("Hello")
        talk.past(answer(write("Hello!", {})))
    batch = packed([talk], np.arange(2000, dtype=np.int64), np.random.default_rng(0), 1.0)
    wanted = batch.candidates[batch.targets]
    assert RETURN not in wanted
    final = write("final", {})
    assert not set(final) & set(wanted.tolist())
