"""identify: the story's question, asked of a file that somebody has."""

from __future__ import annotations

import importlib.util
import json
import pickle
import struct
import time
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from eagle_contracts.cli import main
from eagle_contracts.cli.identified import identified

from .small_checkpoint import HIDDEN, TOKENS, Model, answers, ask, sparse

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A checkpoint in ./model."""
    monkeypatch.chdir(tmp_path)
    return Model(tmp_path / "model")


def test_the_embedding_is_recognised(model: Model, capsys: Captured) -> None:
    """The story's first fault: slot 0 holds the embedding, and the file's name says a layer."""
    torch.save(model.embedded, "aux_0.pt")
    assert ask("aux_0.pt") == 0
    assert capsys.readouterr().out == (
        "aux_0.pt: tensor, [16, 64] BF16\n\nthe embedding of these tokens\n  16 of 16 rows agree\n  to the bit\n"
    )


def test_a_state_after_the_final_norm_is_recognised(model: Model, capsys: Captured) -> None:
    """What rows alone cannot tell is said to be open."""
    save_file({"final": model.normed(model.gain.float())}, "final.safetensors")
    assert ask("final.safetensors") == 0
    out = capsys.readouterr().out
    assert "\nafter the final norm (model.norm)\n" in out
    assert "  rows divided by model.norm's gain have RMS 0.999 to 1; normed rows have 1\n" in out
    assert "  open: which layer's state was normed needs the model: run the contract\n" in out


def test_a_state_before_the_final_norm_is_neither(model: Model, capsys: Captured) -> None:
    """No layer is named: that needs the model."""
    torch.save(model.state, "final.pt")
    assert ask("final.pt") == 0
    out = capsys.readouterr().out
    assert "\nnot the embedding; not normed by model.norm: a stream state\n" in out
    assert "  open: which layer's, the last's before the norm too, or a sub-layer's: run the contract\n" in out


def test_each_slot_of_a_concatenation_is_answered_for(model: Model, capsys: Captured) -> None:
    """A wrong slot shows beside right ones, and --slot asks for one."""
    parts = [model.embedded, model.state.bfloat16(), model.normed(model.gain.float())]
    save_file({"hidden_states": torch.cat(parts, 1)[None], "ids": torch.tensor(TOKENS)}, "sample.safetensors")
    name = ("--name", "hidden_states")
    assert answers(capsys, "sample.safetensors", *name) == ["embedding", "before_final_norm", "after_final_norm"]
    assert answers(capsys, "sample.safetensors", *name, "--slot", "2") == ["after_final_norm"]


def test_two_slots_tell_of_each_other(model: Model, capsys: Captured) -> None:
    """Where one slot is another, normed, both are known without any model."""
    save_file({"x": torch.cat([model.state, model.normed(model.gain.float()).float()], 1)}, "pair.safetensors")
    assert ask("pair.safetensors") == 0
    out = capsys.readouterr().out
    assert "\nslot 0: the state before the final norm: slot 1 is this one, normed\n" in out
    assert "\nslot 1: after the final norm (model.norm)\n" in out
    assert "  it is slot 0, normed\n" in out


def predicting(model: Model) -> Tensor:
    """States as a trained model's last ones are: normed, they have most to do with lm_head's row of what follows."""
    head = torch.randn(100, HIDDEN, generator=torch.Generator().manual_seed(1)).bfloat16()
    model.save(
        {
            "model.embed_tokens.weight": model.embedding,
            "model.norm.weight": model.gain,
            "lm_head.weight": head,
        }
    )
    return model.state + 9 * head[[*TOKENS[1:], 0]].float() / model.gain.float()


def test_a_state_that_predicts_what_follows_is_one_of_the_last(model: Model, capsys: Captured) -> None:
    """The final state before its norm, alone in a file: lm_head tells."""
    torch.save(predicting(model), "final.pt")
    assert ask("final.pt") == 0
    out = capsys.readouterr().out
    assert "\nbefore the final norm: the last state, or one of the last\n" in out
    assert "  through lm_head the next token has 0% of 100 sampled tokens ahead of it (median); chance is 50%\n" in out
    assert "  open: how many layers from the last needs the model: run the contract\n" in out


def test_a_state_that_predicts_something_else_is_no_last_one(model: Model, capsys: Captured) -> None:
    """The tokens of another request: the same state no longer predicts what follows."""
    torch.save(predicting(model), "final.pt")
    assert ask("final.pt", tokens=",".join(map(str, range(60, 60 + len(TOKENS))))) == 0
    assert "\nnot the embedding; not normed by model.norm: a stream state\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("make", "answer"),
    [
        (lambda m: m.embedded.float(), "embedding"),
        (lambda m: m.embedded.half(), "embedding"),
        (lambda m: m.embedded.float().double(), "embedding"),
        (lambda m: (m.embedded.float() * 8).bfloat16(), "scaled_embedding"),
        (lambda m: m.embedded.float() + m.embedded.float() / 256, "embedding"),
        (lambda m: torch.roll(m.embedded, -1, 0), "next_token_embedding"),
        (lambda m: torch.roll(m.embedded, 1, 0), "previous_token_embedding"),
        (lambda m: torch.roll(m.embedded.float() * 8, -1, 0), "next_token_embedding"),
        (lambda m: m.normed(torch.ones(HIDDEN)), "normed"),
        (lambda m: m.normed(m.gain.float() * 3), "other"),
        (lambda m: m.normed(m.gain.float().flip(0)), "other"),
        (lambda m: torch.zeros(len(TOKENS), HIDDEN), "zero"),
        (lambda m: m.embedded.float() + m.state / 100, "other"),
    ],
)
def test_states_that_are_nearly_something(
    model: Model, capsys: Captured, make: Callable[[Model], Tensor], answer: str
) -> None:
    """Precision and scale do not hide an embedding; another gain or a first layer's output is none of the two."""
    torch.save(make(model), "x.pt")
    assert answers(capsys, "x.pt") == [answer]


def test_gemmas_scale_and_gain_are_known(model: Model, capsys: Captured) -> None:
    """Gemma multiplies embeddings by sqrt(hidden_size), and its norm's gain is 1 + weight."""
    model.configure({"model_type": "gemma2"})
    both = [(model.embedded.float() * 8).bfloat16(), model.normed(1 + model.gain.float())]
    save_file({"x": torch.cat(both, 1)}, "x.safetensors")
    assert ask("x.safetensors") == 0
    out = capsys.readouterr().out
    assert "slot 0: the embedding of these tokens times sqrt(hidden_size) = 8, as this model's class does\n" in out
    assert "slot 1: after the final norm (model.norm)\n" in out


def test_a_flat_gain_and_few_rows_are_said(model: Model, capsys: Captured) -> None:
    """Evidence that is weaker than usual is called so."""
    model.save({"model.embed_tokens.weight": model.embedding, "model.norm.weight": torch.ones(HIDDEN)})
    torch.save(model.normed(torch.ones(HIDDEN))[:2], "x.pt")
    assert ask("x.pt", tokens="1,2") == 0
    out = capsys.readouterr().out
    assert "  model.norm's gain is nearly flat, so another norm could look the same\n" in out
    assert "run the contract; 2 rows are few to tell by\n" in out


def test_a_norm_that_is_missing_leaves_the_question_open(model: Model, capsys: Captured) -> None:
    """The embedding can still be told."""
    model.save({"model.embed_tokens.weight": model.embedding})
    torch.save(model.state, "x.pt")
    assert ask("x.pt") == 0
    assert (
        "\nnot the embedding; whether it is normed cannot be told: the checkpoint has no model.norm.weight\n"
        in capsys.readouterr().out
    )


def test_tokens_may_come_from_a_file(model: Model, capsys: Captured) -> None:
    """A JSON list, and a tensor among others."""
    torch.save(model.embedded, "x.pt")
    Path("tokens.json").write_text(json.dumps([TOKENS]))
    torch.save({"input_ids": torch.tensor([TOKENS]), "loss_mask": torch.ones(16, dtype=torch.long)}, "sample.pt")
    assert [ask("x.pt", tokens=where) for where in ("@tokens.json", "@sample.pt")] == [0, 0]
    assert capsys.readouterr().out.count("the embedding of these tokens\n") == 2


def test_a_terabyte_costs_no_more_than_its_index(model: Model, capsys: Captured) -> None:
    """200 shards of 5 GB, full of holes, and an index of 100,000 names: only the two tensors' shards are opened."""
    (model.folder / "model.safetensors").unlink()
    shards = [f"model-{n:05}-of-00200.safetensors" for n in range(200)]
    names = {f"model.layers.{n // 1700}.mlp.experts.{n % 1700}.up_proj.weight": shards[n % 200] for n in range(100_000)}
    for shard in shards:
        sparse(model.folder / shard, {"filler": ("BF16", [5 << 14, 1 << 15])})
    vocabulary, rows = 5 << 20, TOKENS
    place = sparse(model.folder / shards[7], {"model.embed_tokens.weight": ("BF16", [vocabulary, HIDDEN])})
    with (model.folder / shards[7]).open("r+b") as file:
        file.seek(place + rows[0] * HIDDEN * 2)
        file.write(model.embedded.contiguous().view(torch.uint8).numpy().tobytes())
    model.save({"model.norm.weight": model.gain}, shards[9])
    index = {**names, "model.embed_tokens.weight": shards[7], "model.norm.weight": shards[9]}
    (model.folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    size = sum(path.stat().st_size for path in model.folder.iterdir())
    torch.save(model.embedded, "x.pt")
    start = time.process_time()
    found: Any = identified(Path("x.pt"), model.folder, ",".join(map(str, TOKENS)), None, None)
    took = time.process_time() - start
    assert found["slots"][0]["answer"] == "embedding"
    assert size > 10**12
    assert took < 0.5


def test_a_huge_file_is_not_read(model: Model, capsys: Captured) -> None:
    """Its header says that it has other rows than tokens."""
    sparse(Path("huge.safetensors"), {"x": ("BF16", [1 << 33, HIDDEN])})
    start = time.process_time()
    assert ask("huge.safetensors") == 1
    assert time.process_time() - start < 0.5
    said = "eagle-contracts: x of huge.safetensors has 8589934592 rows, and 16 tokens are given\n"
    assert capsys.readouterr().err == said


def wrong_rows(model: Model) -> None:
    torch.save(model.embedded[:3], "x.pt")


def wrong_width(model: Model) -> None:
    torch.save(torch.ones(16, 100), "x.pt")


def not_a_number(model: Model) -> None:
    bad = model.state.clone()
    bad[2, 7] = float("nan")
    bad[3, 1] = float("inf")
    torch.save(bad, "x.pt")


def empty(model: Model) -> None:
    Path("x.pt").touch()


def integers(model: Model) -> None:
    torch.save(torch.ones(16, 64, dtype=torch.long), "x.pt")


def one_axis(model: Model) -> None:
    torch.save(torch.ones(64), "x.pt")


def no_tensor(model: Model) -> None:
    torch.save({"a": 1}, "x.pt")


def a_pickle(model: Model) -> None:
    torch.save({"config": Path("x"), "x": model.embedded}, "x.pt")


def a_bare_pickle(model: Model) -> None:
    Path("x.pt").write_bytes(pickle.dumps(OrderedDict(x=struct.Struct)))


def no_config(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    (model.folder / "config.json").unlink()


def broken_config(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    (model.folder / "config.json").write_text("{")


def no_hidden_size(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    (model.folder / "config.json").write_text("{}")


def other_hidden_size(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    model.configure({"hidden_size": 32})


def no_embedding(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    model.save({"model.norm.weight": model.gain})


def no_shard(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    index = {"weight_map": {"model.embed_tokens.weight": "../model.safetensors"}}
    (model.folder / "model.safetensors.index.json").write_text(json.dumps(index))


def a_pointer(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 5\n"
    (model.folder / "model.safetensors").write_text(text)


def no_weights(model: Model) -> None:
    torch.save(model.embedded, "x.pt")
    (model.folder / "model.safetensors").unlink()


MISTAKES: dict[Callable[[Model], None], str] = {
    wrong_rows: "tensor of x.pt has 3 rows, and 16 tokens are given",
    wrong_width: "tensor of x.pt is 100 wide, which is no whole number of slots of hidden_size 64",
    not_a_number: "tensor of x.pt has 2 values that are no finite numbers among those read, the first in row 2, "
    "column 7: nothing can be told of it",
    empty: "x.pt is empty (0 bytes): whatever wrote it did not finish",
    integers: "tensor of x.pt holds I64; hidden states are F64, F32, F16, BF16",
    one_axis: "tensor of x.pt is 64, and [tokens, width] of one request is wanted",
    no_tensor: "x.pt holds no tensor",
    a_pickle: "x.pt needs unpickling (pathlib.PosixPath), which can run code, and is refused: save plain tensors, with "
    "safetensors or as torch.save of a dict of tensors",
    a_bare_pickle: "x.pt is no file of plain tensors, or damaged: it would need unpickling, which can run code",
    no_config: "model has no config.json",
    broken_config: "model/config.json cannot be read as JSON: Expecting property name enclosed in double quotes: "
    "line 1 column 2 (char 1)",
    no_hidden_size: "model/config.json names no hidden_size: it must be the config.json of the target model",
    other_hidden_size: "model.embed_tokens.weight of model is 100 x 64, and hidden_size in config.json is 32",
    no_embedding: "the checkpoint model has no tensor *.embed_tokens.weight: did you mean 'model.norm.weight'?",
    no_shard: "model.safetensors.index.json says that model.embed_tokens.weight is in ../model.safetensors, and model "
    "has no such file",
    a_pointer: "model/model.safetensors cannot be read as safetensors: it is a Git LFS pointer, not the file itself; "
    "fetch it with `git lfs pull`",
    no_weights: "model has no .safetensors file",
}


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.__name__)
def test_what_cannot_be_answered_is_one_sentence(
    model: Model, capsys: Captured, mistake: Callable[[Model], None]
) -> None:
    """Exit code 1, and no traceback."""
    mistake(model)
    assert ask("x.pt") == 1
    assert capsys.readouterr() == ("", f"eagle-contracts: {MISTAKES[mistake]}\n")


@pytest.mark.parametrize(
    ("words", "tokens", "code", "message"),
    [
        (["x.pt"], "1,b", 2, "--tokens takes 1,2,3 or @FILE, not '1,b'"),
        (["x.pt"], "@no.json", 2, "there is no file no.json to read tokens from"),
        (["y.pt"], "1,2", 2, "there is no file y.pt"),
        (["model"], "1,2", 2, "model is no file"),
        (["x.txt"], "1,2", 2, "x.txt is neither .safetensors nor .pt: save the tensor as one of them"),
        (["two.pt"], "1,2", 2, "two.pt holds 2 tensors (aux.0, aux.1): choose one with --name"),
        (["two.pt", "--name", "aux.2"], "1,2", 2, "two.pt has no tensor 'aux.2': did you mean 'aux.1'?"),
        (["x.pt", "--slot", "1"], "1,2", 2, "there is no slot 1: tensor has slots 0 to 0"),
        (["x.pt"], "1,100", 1, "token 100 (number 1) is out of range: model.embed_tokens.weight has 100 rows"),
        (["x.pt"], "-1,2", 1, "token -1 (number 0) is out of range: model.embed_tokens.weight has 100 rows"),
        (["x.pt", "--checkpoint", "modell"], "1,2", 2, "there is no checkpoint folder modell"),
    ],
)
def test_wrong_words_are_told_apart_from_wrong_files(
    model: Model, capsys: Captured, words: list[str], tokens: str, code: int, message: str
) -> None:
    """Exit code 2 for what was typed, 1 for what a file holds."""
    torch.save(model.state[:2], "x.pt")
    torch.save({"aux": [model.state[:2], model.state[:2]]}, "two.pt")
    Path("x.txt").write_text("hello")
    assert main(["identify", "--checkpoint", "model", f"--tokens={tokens}", *words]) == code
    assert capsys.readouterr() == ("", f"eagle-contracts: {message}\n")


def test_without_torch_the_extra_is_named(model: Model, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    """The package installs without torch, and says what is missing."""
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    assert ask("x.pt") == 2
    assert capsys.readouterr().err == (
        "eagle-contracts: identify needs torch, which this Python does not have: pip install 'eagle-contracts[torch]'\n"
    )


@pytest.mark.parametrize("damage", ["zero head", "nan head", "zero rows", "zero gain", "huge state"])
def test_states_that_predict_nothing_are_no_last_ones(model: Model, capsys: Captured, damage: str) -> None:
    """Where all logits are equal, or are no numbers, nothing is concluded from them."""
    state = predicting(model)
    head = torch.zeros(100, HIDDEN) if damage == "zero head" else torch.full((100, HIDDEN), float("nan"))
    weights = {"model.embed_tokens.weight": model.embedding, "model.norm.weight": model.gain}
    if damage in ("zero head", "nan head"):
        model.save({**weights, "lm_head.weight": head.bfloat16()})
    if damage == "zero gain":
        model.save({**weights, "model.norm.weight": torch.zeros(HIDDEN).bfloat16()})
    if damage == "zero rows":
        state[4:] = 0
    torch.save(state * (1e25 if damage == "huge state" else 1), "final.pt")
    assert answers(capsys, "final.pt") == ["other"]


def test_a_tied_head_makes_no_last_state_of_an_embedding(model: Model, capsys: Captured) -> None:
    """The next token's embedding, scaled by what no config accounts for, is predicted perfectly by a tied head."""
    torch.save(model.embedding[[*TOKENS[1:], 0]].float() * 8 + 0.02 * model.state, "next.pt")
    assert answers(capsys, "next.pt") == ["other"]


@pytest.mark.parametrize("wrong", [[3], [1, 2, 5, 7, 8, 9, 10, 11, 12]])
def test_an_embedding_in_some_rows_is_no_plain_yes(model: Model, capsys: Captured, wrong: list[int]) -> None:
    """Neither most rows nor few of them speak for the others: how many, and which do not, is told."""
    x = model.embedded.float()
    x[wrong] = model.state[wrong]
    torch.save(x, "x.pt")
    assert ask("x.pt") == 0
    out = capsys.readouterr().out
    count = len(TOKENS) - len(wrong)
    assert f"the embedding of these tokens in {count} of 16 rows, and something else in {len(wrong)}\n" in out
    listed = ", ".join(map(str, wrong[:5])) + (", ..." if len(wrong) > 5 else "")
    assert f"  not in rows {listed}\n" in out
    assert "  these rows: not the embedding; not normed by model.norm: a stream state\n" in out
    assert "  open: are these the tokens of this file?" in out


def test_states_computed_in_fewer_bits_than_they_are_stored_in(model: Model, capsys: Captured) -> None:
    """A float32 file of what a bf16 engine computed is told as such."""
    torch.save(model.embedded.float() * (1 + torch.randn(len(TOKENS), HIDDEN) / 512), "x.pt")
    assert ask("x.pt") == 0
    out = capsys.readouterr().out
    assert "\nthe embedding of these tokens\n" in out
    assert ": as exact as what was computed in bf16 or fp16\n" in out


def test_an_embedding_of_no_numbers_tells_nothing(model: Model, capsys: Captured) -> None:
    """A damaged row of the checkpoint is named by its token, and gives no answer."""
    embedding = model.embedding.clone()
    embedding[TOKENS[2], 7] = float("nan")
    model.save({"model.embed_tokens.weight": embedding, "model.norm.weight": model.gain})
    torch.save(model.embedded, "x.pt")
    assert ask("x.pt") == 1
    assert "has values that are no finite numbers in the row of token 7: nothing can" in capsys.readouterr().err


def test_the_next_token_where_not_all_rows_are_read(model: Model, capsys: Captured) -> None:
    """Of a long request some rows are read, and their neighbours' tokens are still their neighbours'."""
    ids = torch.randint(0, 100, (3000,), generator=torch.Generator().manual_seed(3)).tolist()
    torch.save(model.embedding[[*ids[1:], 0]], "x.pt")
    Path("ids.json").write_text(json.dumps(ids))
    assert ask("x.pt", "--json", tokens="@ids.json") == 0
    [slot] = json.loads(capsys.readouterr().out)["slots"]
    assert slot["answer"] == "next_token_embedding"


def test_a_head_that_is_not_there_is_not_asked(model: Model, capsys: Captured) -> None:
    """A shard that was not downloaded takes one question away, not all of them."""
    weights = {"model.embed_tokens.weight": "model.safetensors", "model.norm.weight": "model.safetensors"}
    index = json.dumps({"weight_map": {**weights, "lm_head.weight": "model-00002.safetensors"}})
    (model.folder / "model.safetensors.index.json").write_text(index)
    torch.save(model.embedded, "x.pt")
    assert answers(capsys, "x.pt") == ["embedding"]
    torch.save(model.state, "x.pt")
    assert ask("x.pt") == 0
    assert (
        "  lm_head was not asked: model.safetensors.index.json says that lm_head.weight is in"
        in capsys.readouterr().out
    )


def test_the_width_of_the_text_part_counts(model: Model, capsys: Captured) -> None:
    """Some configs have a hidden size at the top that is not the text model's."""
    part = {"hidden_size": HIDDEN, "num_hidden_layers": 10}
    (model.folder / "config.json").write_text(json.dumps({"hidden_size": 32, "text_config": part}))
    torch.save(model.embedded, "x.pt")
    assert answers(capsys, "x.pt") == ["embedding"]
