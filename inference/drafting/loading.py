"""Loads a draft head for a model from a folder in either published layout.

The layouts differ in names only: the layer is `layers.0` or `midlayer`, with or without `model.` before it.
What a file leaves out (embedding, vocabulary) is the model's own.
"""

from pathlib import Path

import torch
from torch import Tensor

from inference.drafting.config import DraftConfig, read_draft_config
from inference.drafting.head import DraftHead, DraftWeights
from inference.engine import CheckpointError
from inference.models.gpt_oss import GptOss
from inference.models.tensor_files import TensorFiles
from inference.ops.device import runs_kernels
from inference.ops.halves import Matrix, halves_where_exact
from inference.paths import REPO_ID, expanded_path

LAYERS = ("layers.0.", "midlayer.")
TOPS = ("", "model.")


def load_draft_head(name: str, model: GptOss) -> DraftHead:
    """`name`: of the folder. Raises `CheckpointError`."""
    folder = _folder(name)
    config = read_draft_config(folder / "config.json", model.config.layers)
    _check_fit(folder, config, model)
    return DraftHead(config, _Reader(TensorFiles(folder), config, model).weights(), model)


def _folder(name: str) -> Path:
    folder = expanded_path(name, failure=CheckpointError)
    if not folder.is_dir():
        hint = f" Download it first: hf download {name} --local-dir FOLDER."
        is_repo = REPO_ID.fullmatch(name)
        raise CheckpointError(f"There is no folder {folder} with a draft head.{hint if is_repo else ''}")
    if not (folder / "config.json").is_file():
        raise CheckpointError(f"{folder} holds no draft head: it has no config.json.")
    return folder


def _check_fit(folder: Path, config: DraftConfig, model: GptOss) -> None:
    own = model.config
    other = "This head was trained for another model; choose one for the model that runs."
    if config.target_hidden != own.hidden:
        raise CheckpointError(
            f"{folder}: the head takes hidden states of size {config.target_hidden}, but the model's have "
            f"{own.hidden}. {other}"
        )
    if config.vocab_size != own.vocab_size:
        raise CheckpointError(
            f"{folder}: the head is for a vocabulary of {config.vocab_size} ids, but the model has "
            f"{own.vocab_size}. {other}"
        )
    if config.states is not None and max(config.states) > own.layers:
        raise CheckpointError(
            f"{folder}: the head takes the states after layer {max(config.states)}, but the model has "
            f"{own.layers} layers. {other}"
        )
    if runs_kernels(model.device) and config.head_dim not in (16, 32, 64, 128, 256):
        raise CheckpointError(
            f"{folder}: head_dim is {config.head_dim}; on a GPU only powers of two from 16 up to 256 are "
            "supported. Use --speculation ngram there, or --device cpu."
        )
    if None not in own.windows:
        raise CheckpointError(
            "A draft head needs a model with full-attention layers: its keys and values lie among theirs."
        )


class _Reader:
    def __init__(self, files: TensorFiles, config: DraftConfig, model: GptOss) -> None:
        self._files, self._config, self._model = files, config, model
        names = (top + layer for top in TOPS for layer in LAYERS)
        self._layer = next((name for name in names if f"{name}self_attn.q_proj.weight" in files), None)
        if self._layer is None:
            raise CheckpointError(
                f"{files.folder} holds no EAGLE-3 draft head: neither 'layers.0.self_attn.q_proj.weight' nor "
                "'midlayer.self_attn.q_proj.weight' is among its tensors."
            )

    def weights(self) -> DraftWeights:
        config = self._config
        hidden, wide = config.hidden, config.heads * config.head_dim
        kv = config.kv_heads * config.head_dim
        bias = config.attention_bias
        has_out_bias = bias and f"{self._layer}self_attn.o_proj.bias" in self._files
        rows = {"q": wide, "k": kv, "v": kv}
        q, k, v = (self._of_layer(f"self_attn.{part}_proj.weight", n, 2 * hidden) for part, n in rows.items())
        biases = [self._of_layer(f"self_attn.{part}_proj.bias", n) for part, n in rows.items() if bias]
        gates = [
            self._of_layer(f"mlp.{part}_proj.weight", config.intermediate, hidden) for part in ("gate", "up")
        ]
        fc, fc_norm, state_norms = self._fusion()
        head, ids = self._head()
        return DraftWeights(
            fc=fc,
            fc_norm=fc_norm,
            state_norms=state_norms,
            token_norm=self._of_layer("input_layernorm.weight", hidden).float(),
            feature_norm=self._of_layer("hidden_norm.weight", hidden).float(),
            q=halves_where_exact(q),
            q_bias=biases[0] if bias else None,
            kv=halves_where_exact(torch.cat((k, v))),
            kv_bias=torch.cat(biases[1:]) if bias else None,
            out=halves_where_exact(self._of_layer("self_attn.o_proj.weight", hidden, wide)),
            out_bias=self._of_layer("self_attn.o_proj.bias", hidden) if has_out_bias else None,
            mlp_norm=self._of_layer("post_attention_layernorm.weight", hidden).float(),
            gate_up=halves_where_exact(torch.cat(gates)),
            down=halves_where_exact(self._of_layer("mlp.down_proj.weight", hidden, config.intermediate)),
            norm=self._at_top("norm.weight", hidden).float(),
            embedding=self._embedding(),
            head=head,
            ids=ids,
        )

    def _fusion(self) -> tuple[Matrix | None, Tensor | None, tuple[Tensor, ...]]:
        config = self._config
        if config.states is None:
            if config.hidden != config.target_hidden:
                raise CheckpointError(
                    f"{self._files.folder}: a head without 'fc' must have the model's hidden size, "
                    f"{config.target_hidden}, not {config.hidden}."
                )
            return None, None, ()
        count = len(config.states)
        width = count * config.target_hidden
        return (
            halves_where_exact(self._at_top("fc.weight", config.hidden, width)),
            self._at_top("input_norm.weight", width).float() if config.norm_before_fc else None,
            tuple(
                self._at_top(f"fc_norm.{at}.weight", config.target_hidden).float()
                for at in range(count if config.norm_each_state else 0)
            ),
        )

    def _embedding(self) -> Tensor | None:
        config = self._config
        name = self._top("embed_tokens.weight")
        if name in self._files:
            return self._files.take(name, (config.vocab_size, config.hidden)).to(self._model.device)
        if config.hidden != self._model.config.hidden:
            raise CheckpointError(
                f"{self._files.folder}: the tensor {name!r} is missing, and the model's own embedding has "
                f"{self._model.config.hidden} columns, not {config.hidden}."
            )
        return None

    def _head(self) -> tuple[Matrix | None, Tensor | None]:
        config = self._config
        if config.draft_vocab is None and self._top("lm_head.weight") not in self._files:
            if config.hidden != self._model.config.hidden:
                raise CheckpointError(
                    f"{self._files.folder}: a head without a vocabulary of its own must have the model's "
                    f"hidden size, {self._model.config.hidden}, not {config.hidden}."
                )
            return None, None
        rows = config.draft_vocab or config.vocab_size
        head = halves_where_exact(self._at_top("lm_head.weight", rows, config.hidden))
        if "d2t" not in self._files and rows == config.vocab_size:
            return head, None
        # The file has, for each of the head's ids, the distance to the model's.
        ids = self._files.take_ids("d2t", (rows,)) + torch.arange(rows)
        if int(ids.min()) < 0 or int(ids.max()) >= config.vocab_size:
            raise CheckpointError(
                f"{self._files.folder}: 'd2t' leads to ids outside of the vocabulary of {config.vocab_size}."
            )
        return head, ids.to(self._model.device)

    def _of_layer(self, name: str, *shape: int) -> Tensor:
        return self._taken(f"{self._layer}{name}", shape)

    def _at_top(self, name: str, *shape: int) -> Tensor:
        return self._taken(self._top(name), shape)

    def _top(self, name: str) -> str:
        return next((top + name for top in TOPS if top + name in self._files), name)

    def _taken(self, name: str, shape: tuple[int, ...]) -> Tensor:
        return self._files.take(name, shape).to(self._model.device, self._model.dtype, copy=True)
