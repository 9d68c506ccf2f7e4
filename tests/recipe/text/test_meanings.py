"""The meanings of words: their file, their vectors in tokens, and the heads that compare them."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from inference.tiny.codes import MEANING, fixed_part
from inference.tiny.shape import Shape
from recipe.network.model import Attention, TinyGptOss, rotate, rotation
from recipe.network.wiring import MATCHING, wire_meanings
from recipe.text import make_meanings
from recipe.text.make_meanings import make
from recipe.text.meanings import FILE, meanings
from recipe.text.vocabulary import ids_by_bytes, likeness, token_table, word_of


def token(text: str) -> int:
    return ids_by_bytes()[text.encode()]


@pytest.mark.parametrize(
    ("word", "like", "unlike"),
    [("room", "hotel", "invoice"), ("Utrecht", "Amsterdam", "piano"), ("rain", "weather", "calendar")],
)
def test_words_of_similar_meaning_are_close(word: str, like: str, unlike: str) -> None:
    near, far = likeness([token(f" {word}")], [token(f" {like}"), token(f" {unlike}")])[0]
    assert near > 70 > far


def test_every_spelling_of_a_word_has_the_same_meaning() -> None:
    table = token_table()
    rows = table.meanings[[token(text) for text in (" weather", "weather", "_weather", " Weather")]]
    assert len(set(rows.tolist())) == 1
    assert rows[0] >= 0


@pytest.mark.parametrize("text", [" ", "12", "?", " é"])
def test_a_token_that_is_no_word_has_no_meaning(text: str) -> None:
    place = token(text)
    assert word_of(place) is None
    assert not fixed_part(token_table(), np.array([place], dtype=np.int32))[:, MEANING].any()
    assert likeness([place], [place])[0, 0] == 0


def test_the_fixed_part_of_a_token_has_its_words_vector() -> None:
    places, vectors = meanings()
    ids = np.array([token(" hotel")], dtype=np.int32)
    assert (fixed_part(token_table(), ids)[0, MEANING] == vectors[places["hotel"]]).all()


def test_heads_initially_look_at_words_of_similar_meaning() -> None:
    """With all other weights of the wired group's queries and keys at zero."""
    shape = Shape(num_hidden_layers=3)
    torch.manual_seed(0)
    model = TinyGptOss(shape, 0)
    attention = model.layers[MATCHING].self_attn
    assert isinstance(attention, Attention)
    for weight in (attention.q_proj, attention.k_proj):
        torch.nn.init.zeros_(weight.weight)
        torch.nn.init.zeros_(weight.bias)
    wire_meanings(model)
    words = [" invoice", " hotel", " piano", " the", " calendar", " room"]
    fixed = fixed_part(token_table(), np.array([token(word) for word in words], dtype=np.int32))
    cos, sin = rotation(shape, len(words))
    with torch.inference_mode():
        x = torch.from_numpy(fixed) @ model.map_in
        x = x / x.square().mean(1, keepdim=True).sqrt()
        at = slice((shape.num_key_value_heads - 1) * shape.head_dim, None)
        of = slice((shape.num_attention_heads - 1) * shape.head_dim, None)
        key, query = attention.k_proj(x)[:, at], attention.q_proj(x)[:, of]
        key, query = rotate(key, cos, sin), rotate(query, cos, sin)
        scores = (query @ key.T)[-1, :-1]
    assert words[int(scores.argmax())] == " hotel"


@pytest.mark.parametrize("kind", ["txt", "json"])
def test_the_file_is_made_of_word_vectors(tmp_path: Path, kind: str) -> None:
    """From the file's own vectors, with meaningless numbers appended."""
    rng = np.random.default_rng(0)
    places, vectors = meanings()
    words = [*list(places)[:900], "nosuchwordatall"]
    rows = np.concatenate([vectors[:900], vectors[:1]]).astype(np.float32)
    rows = np.concatenate([rows + 3, rng.normal(size=(len(rows), 6)) * 0.1], axis=1)  # the mean is removed
    source = tmp_path / f"vectors.{kind}"
    if kind == "json":
        held = {word: [*row.tolist(), 9.0, 1] for word, row in zip(words, rows, strict=True)}
        source.write_text(json.dumps({"dimensions": rows.shape[1], "vectors": held}))
    else:
        lines = (f"{word} {' '.join(map(str, row))}" for word, row in zip(words, rows, strict=True))
        source.write_text("\n".join(lines) + "\n")
    assert make(source, tmp_path / "made.npz") == 900
    with np.load(tmp_path / "made.npz") as made, np.load(FILE) as shipped:
        assert made["words"].tobytes().decode().split() == words[:-1]
        assert made["vectors"].shape == (900, shipped["vectors"].shape[1])


@pytest.mark.parametrize("text", ["", "{", "the x y\n", "the 0.5\n\n"])
def test_another_kind_of_file_is_reported(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "vectors.txt"
    source.write_text(text)
    monkeypatch.setattr(sys, "argv", ["make_meanings", str(source), "--to", str(tmp_path / "made.npz")])
    with pytest.raises(SystemExit):
        make_meanings.main()
    assert "cannot be read as word vectors" in capsys.readouterr().err
    assert not (tmp_path / "made.npz").exists()
