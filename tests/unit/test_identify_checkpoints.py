"""identify on checkpoints as people have them: names, shards, types, parts of a multimodal config."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from .small_checkpoint import HIDDEN, Model, answers, ask

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A checkpoint in ./model."""
    monkeypatch.chdir(tmp_path)
    return Model(tmp_path / "model")


def save_both(model: Model) -> None:
    """Write the embedding beside a normed state, as a sample of two slots."""
    torch.save(torch.cat([model.embedded, model.normed(model.gain.float())], 1), "x.pt")


@pytest.mark.parametrize(
    ("embedding", "norm"),
    [
        ("model.embed_tokens.weight", "model.norm.weight"),
        ("embed_tokens.weight", "norm.weight"),
        ("language_model.model.embed_tokens.weight", "language_model.model.norm.weight"),
        ("model.language_model.embed_tokens.weight", "model.language_model.norm.weight"),
        ("transformer.wte.weight", "transformer.ln_f.weight"),
        ("tok_embeddings.weight", "norm.weight"),
        ("transformer.word_embeddings.weight", "transformer.final_layernorm.weight"),
        ("backbone.embed_tokens.weight", "backbone.norm_f.weight"),
    ],
)
def test_names_of_several_families(model: Model, capsys: Captured, embedding: str, norm: str) -> None:
    """The norm is looked for beside the embedding; a layer's own norms, and what a draft head adds, are not taken."""
    others: dict[str, Tensor] = {
        "lm_head.weight": torch.ones(100, HIDDEN),
        "vision_tower.norm.weight": torch.ones(HIDDEN),
        "model.layers.9.norm.weight": torch.ones(HIDDEN),
        "model.layers.10.embed_tokens.weight": torch.zeros(100, HIDDEN),
        "visual.patch_embed.proj.weight": torch.ones(3, 3),
    }
    model.save({embedding: model.embedding, norm: model.gain, **others})
    save_both(model)
    assert answers(capsys, "x.pt") == ["embedding", "after_final_norm"]


@pytest.mark.parametrize(
    "config",
    [
        {"text_config": {"hidden_size": HIDDEN, "num_hidden_layers": 61}, "vision_config": {"hidden_size": 1152}},
        {
            "vision_config": {"hidden_size": 32, "depth": 2},
            "llm_config": {"hidden_size": HIDDEN, "num_hidden_layers": 3},
        },
        {"hidden_size": HIDDEN},
    ],
)
def test_the_text_part_of_a_config(model: Model, capsys: Captured, config: dict[str, Any]) -> None:
    """A picture's width is not the model's."""
    (model.folder / "config.json").write_text(json.dumps(config))
    save_both(model)
    assert answers(capsys, "x.pt") == ["embedding", "after_final_norm"]


@pytest.mark.parametrize("stored", [torch.float32, torch.float16, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("saved", [torch.float32, torch.float16, torch.bfloat16])
def test_types_of_a_file_and_of_a_checkpoint(
    model: Model, capsys: Captured, stored: torch.dtype, saved: torch.dtype
) -> None:
    """A rounding on one side hides neither."""
    model.save({"model.embed_tokens.weight": model.embedding.to(stored), "model.norm.weight": model.gain.to(stored)})
    both = torch.cat([model.embedded.to(saved), model.normed(model.gain.float()).to(saved)], 1)
    save_file({"x": both}, "x.safetensors")
    assert answers(capsys, "x.safetensors") == ["embedding", "after_final_norm"]


def test_two_shards_and_an_index(model: Model, capsys: Captured) -> None:
    """Each of the two tensors is read where the index says; without it, nobody guesses."""
    (model.folder / "model.safetensors").unlink()
    one, two = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
    model.save({"model.embed_tokens.weight": model.embedding}, one)
    model.save({"model.norm.weight": model.gain}, two)
    save_both(model)
    index = model.folder / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"model.embed_tokens.weight": one, "model.norm.weight": two}}))
    assert answers(capsys, "x.pt") == ["embedding", "after_final_norm"]
    index.unlink()
    assert ask("x.pt") == 1
    said = "model has 2 .safetensors files and no model.safetensors.index.json, which says what is where"
    assert capsys.readouterr().err == f"eagle-contracts: {said}\n"


def test_a_gain_of_one_plus_weight_is_called_so(model: Model, capsys: Captured) -> None:
    """Gemma's norms multiply by 1 + weight: the evidence says by what rows were divided."""
    torch.save(model.normed(1 + model.gain.float()), "x.pt")
    assert ask("x.pt") == 0
    assert (
        "  rows divided by 1 + model.norm's weight have RMS 0.999 to 1; normed rows have 1\n" in capsys.readouterr().out
    )


def test_how_far_it_is_from_both(model: Model, capsys: Captured) -> None:
    """A tensor that is neither comes with its distance from the embedding and from being normed."""
    torch.save(model.state, "x.pt")
    assert ask("x.pt", "--json") == 0
    [slot] = json.loads(capsys.readouterr().out)["slots"]
    assert slot["answer"] == "other"
    assert slot["embedding_error"] > 10
    assert slot["rms"][0] > 1.01
    assert slot["open"].startswith("which layer's, the last's before the norm too")
