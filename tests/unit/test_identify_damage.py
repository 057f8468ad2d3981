"""identify on files that are damaged, or made to do harm: an answer or a sentence, never a traceback or a hang."""

from __future__ import annotations

import json
import os
import pickle
import random
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from .small_checkpoint import HIDDEN, TOKENS, Model, ask

Captured = pytest.CaptureFixture[str]
Damage = Callable[[bytearray, random.Random], bytes]


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Model:
    """A checkpoint in ./model."""
    monkeypatch.chdir(tmp_path)
    return Model(tmp_path / "model")


def cut(data: bytearray, dice: random.Random) -> bytes:
    return bytes(data[: dice.randrange(len(data))])


def flip(data: bytearray, dice: random.Random) -> bytes:
    for _ in range(dice.randint(1, 8)):
        data[dice.randrange(min(len(data), 700))] ^= 1 << dice.randrange(8)
    return bytes(data)


def overwrite(data: bytearray, dice: random.Random) -> bytes:
    where = dice.randrange(len(data))
    data[where : where + 16] = dice.randbytes(16)
    return bytes(data)


def swap_parts(data: bytearray, dice: random.Random) -> bytes:
    one, two = sorted(dice.randrange(len(data)) for _ in range(2))
    return bytes(data[:one] + data[two:] + data[one:two])


def grow(data: bytearray, dice: random.Random) -> bytes:
    where = dice.randrange(len(data))
    return bytes(data[:where] + dice.randbytes(dice.randrange(64)) + data[where:])


def length(data: bytearray, dice: random.Random) -> bytes:
    return struct.pack("<Q", dice.choice([0, 1, 7, 1 << 20, 1 << 31, 1 << 62, (1 << 64) - 1])) + bytes(data[8:])


def digits(data: bytearray, dice: random.Random) -> bytes:
    """Change numbers of a header: shapes and offsets that overlap, run backwards, or leave the file."""
    places = [n for n, byte in enumerate(data[:400]) if chr(byte).isdigit()]
    for _ in range(dice.randint(1, 3) if places else 0):
        data[dice.choice(places)] = ord(dice.choice("0123456789-"))
    return bytes(data)


DAMAGES: tuple[Damage, ...] = (cut, flip, overwrite, swap_parts, grow, length, digits)


def test_a_thousand_damaged_files(model: Model, capsys: Captured) -> None:
    """Three kinds of file, seven kinds of damage, one seed."""
    both = {"x": model.embedded, "y": model.state}
    torch.save(both, "a.pt")
    torch.save(both, "old.pt", _use_new_zipfile_serialization=False)
    save_file(both, "b.safetensors")
    whole = {name: Path(name).read_bytes() for name in ("a.pt", "old.pt", "b.safetensors")}
    dice, codes = random.Random(2), []
    start = time.process_time()
    for number in range(1000):
        name = dice.choice(list(whole))
        Path(f"damaged-{name}").write_bytes(DAMAGES[number % len(DAMAGES)](bytearray(whole[name]), dice))
        codes.append(ask(f"damaged-{name}", "--name", "x"))
    said = capsys.readouterr()
    assert set(codes) <= {0, 1, 2}
    assert codes.count(1) > 300
    assert codes.count(0) > 100
    assert "Traceback" not in said.out + said.err
    assert said.err.count("\n") == len(codes) - codes.count(0)
    assert time.process_time() - start < 60


def header(entries: dict[str, Any], size: int) -> bytes:
    text = json.dumps(entries).encode()
    return struct.pack("<Q", len(text)) + text + bytes(size)


def entry(shape: list[Any], begin: Any, end: Any, kind: str = "BF16") -> dict[str, Any]:
    return {"dtype": kind, "shape": shape, "data_offsets": [begin, end]}


ROWS, SIZE = len(TOKENS), len(TOKENS) * HIDDEN * 2
DEEP = "[" * 100_000
HEADERS: dict[str, tuple[bytes, str]] = {
    "overlap": (
        header({"x": entry([ROWS, HIDDEN], 0, SIZE), "y": entry([ROWS, HIDDEN], 2, SIZE + 2)}, SIZE + 2),
        "cannot be read as safetensors: x and y overlap",
    ),
    "beyond": (header({"x": entry([ROWS, HIDDEN], 8, SIZE + 8)}, SIZE), "x does not fit: the file is cut"),
    "backwards": (header({"x": entry([ROWS, HIDDEN], SIZE, 0)}, SIZE), "x does not fit: the file is cut"),
    "another type": (
        header({"x": entry([ROWS, HIDDEN], 0, SIZE, "F32")}, SIZE),
        "x does not fit: the file is cut shor",
    ),
    "unknown type": (
        header({"x": entry([ROWS, HIDDEN], 0, SIZE, "F8_E4M3")}, SIZE),
        "x of x.safetensors holds F8_E4M3",
    ),
    "a shape of words": (header({"x": entry(["16", HIDDEN], 0, SIZE)}, SIZE), "x has no shape"),
    "a negative shape": (header({"x": entry([-16, -HIDDEN], 0, SIZE)}, SIZE), "x has no shape"),
    "no columns": (header({"x": entry([ROWS, 0], 0, 0)}, 0), "x of x.safetensors is 0 wide, which is no whole number"),
    "no rows": (header({"x": entry([0, HIDDEN], 0, 0)}, 0), "x of x.safetensors has 0 rows, and 16 tokens are given"),
    "three offsets": (
        header({"x": {"dtype": "BF16", "shape": [ROWS, HIDDEN], "data_offsets": [0, 1, 2]}}, SIZE),
        "cannot be read as safetensors: too many values to unpack",
    ),
    "a list": (header([], 0), "cannot be read as safetensors: "),  # type: ignore[arg-type]
    "deep": (struct.pack("<Q", len(DEEP)) + DEEP.encode(), "cannot be read as safetensors: "),
    "a long header": (struct.pack("<Q", 1 << 63) + b"{}", "its header would be 9223372036854775808 bytes long"),
    "no header": (b"\x00" * 8, "cannot be read as safetensors: "),
    "a name that terminals obey": (
        header({"\x1b[2J\ud800": entry([ROWS, 100], 0, ROWS * 200)}, ROWS * 200),
        "?[2J? of x.safetensors is 100 wide, which is no whole number of slots of hidden_size 64",
    ),
}


@pytest.mark.parametrize("kind", HEADERS)
def test_a_header_that_lies(model: Model, capsys: Captured, kind: str) -> None:
    """One sentence that names what does not fit."""
    data, words = HEADERS[kind]
    Path("x.safetensors").write_bytes(data)
    assert ask("x.safetensors") == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)
    assert words in said.err


class Evil:
    """What runs a command when it is unpickled."""

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[str]]:
        return os.system, ("touch ran",)


@pytest.mark.parametrize("new", [True, False])
def test_code_in_a_pickle_does_not_run(model: Model, capsys: Captured, new: bool) -> None:
    """Neither in today's format nor in the old one, nor in a bare pickle."""
    torch.save({"x": model.embedded, "evil": Evil()}, "x.pt", _use_new_zipfile_serialization=new)
    Path("bare.pt").write_bytes(pickle.dumps(Evil()))
    Path("tokens.pt").write_bytes(pickle.dumps(Evil()))
    assert [ask("x.pt", "--name", "x"), ask("bare.pt"), ask("x.pt", tokens="@tokens.pt")] == [1, 1, 1]
    assert not Path("ran").exists()
    first, *_ = capsys.readouterr().err.splitlines()
    assert first.startswith("eagle-contracts: x.pt needs unpickling (posix.system), which can run code, and is refused")


def bomb(name: str, size: int) -> None:
    """A zip as torch writes it, whose pickle unpacks to `size` bytes."""
    with zipfile.ZipFile("x.pt", "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open(f"x/{name}", "w", force_zip64=True) as file:
            for _ in range(size >> 20):
                file.write(bytes(1 << 20))
        archive.writestr("x/version", "3")


def test_a_zip_bomb_is_not_unpacked(model: Model, capsys: Captured) -> None:
    """Its directory says how large it would be."""
    bomb("data.pkl", 128 << 20)
    assert Path("x.pt").stat().st_size < 1 << 20
    start = time.process_time()
    assert ask("x.pt") == 1
    assert time.process_time() - start < 1
    assert capsys.readouterr().err == (
        "eagle-contracts: x.pt describes its tensors in 128 MiB of pickle: no file of hidden states does\n"
    )


def test_containers_in_containers_are_entered_once(model: Model, capsys: Captured) -> None:
    """Forty levels of pairs are 2 ** 40 paths to one tensor, and a list can hold itself."""
    inner: list[Any] = [model.embedded]
    for _ in range(40):
        inner = [inner, inner]
    inner.append(inner)
    torch.save(inner, "x.pt")
    start = time.process_time()
    assert ask("x.pt") == 0
    assert time.process_time() - start < 1
    assert "the embedding of these tokens\n" in capsys.readouterr().out


STRANGE: dict[str, Callable[[], torch.Tensor]] = {
    "nested": lambda: torch.nested.nested_tensor([torch.ones(3, 64), torch.ones(2, 64)]),
    "sparse": lambda: torch.ones(16, 64).to_sparse(),
    "meta": lambda: torch.ones(16, 64, device="meta"),
    "complex": lambda: torch.ones(16, 64, dtype=torch.complex64),
    "bool": lambda: torch.ones(16, 64, dtype=torch.bool),
    "quantized": lambda: torch.quantize_per_tensor(torch.ones(16, 64), 0.1, 0, torch.qint8),
    "float8": lambda: torch.ones(16, 64).to(torch.float8_e4m3fn),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", STRANGE)
def test_tensors_that_are_no_hidden_states(model: Model, capsys: Captured, kind: str) -> None:
    """One sentence that says what they are."""
    torch.save(STRANGE[kind](), "x.pt")
    assert ask("x.pt") == 1
    said = capsys.readouterr()
    assert (said.out, said.err.count("\n")) == ("", 1)


def test_a_tensor_of_one_row_repeated_is_read_row_by_row(model: Model, capsys: Captured) -> None:
    """A stride of 0 makes a terabyte of one row: it has other rows than tokens."""
    torch.save(torch.ones(1, 64).expand(1 << 32, 64), "x.pt")
    assert ask("x.pt") == 1
    assert capsys.readouterr().err == "eagle-contracts: tensor of x.pt has 4294967296 rows, and 16 tokens are given\n"


@pytest.mark.parametrize("words", [[], ["--json"]])
def test_a_name_that_no_terminal_shows(model: Model, capsys: Captured, words: list[str]) -> None:
    """Answers about it are printed all the same."""
    data = model.embedded.contiguous().view(torch.uint8).numpy().tobytes()
    text = json.dumps({"\ud800\x1b": entry([ROWS, HIDDEN], 0, SIZE)}).encode()
    Path("x.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + data)
    assert ask("x.safetensors", *words) == 0
    out = capsys.readouterr().out
    assert out.isprintable() or "\x1b" not in out
    assert "embedding" in out


def test_a_damaged_checkpoint(model: Model, capsys: Captured) -> None:
    """Its config, its index and its shards, six hundred times: an answer or a sentence."""
    torch.save(model.embedded, "x.pt")
    index = {"weight_map": {"model.embed_tokens.weight": "model.safetensors", "model.norm.weight": "model.safetensors"}}
    (model.folder / "model.safetensors.index.json").write_text(json.dumps(index))
    whole = {path: path.read_bytes() for path in model.folder.iterdir()}
    dice, codes = random.Random(4), []
    for number in range(600):
        path = dice.choice(sorted(whole))
        path.write_bytes(DAMAGES[number % len(DAMAGES)](bytearray(whole[path]), dice))
        codes.append(ask("x.pt"))
        path.write_bytes(whole[path])
    said = capsys.readouterr()
    assert set(codes) <= {0, 1, 2}
    assert codes.count(1) > 200
    assert "Traceback" not in said.out + said.err
    assert said.err.count("\n") == len(codes) - codes.count(0)


def test_a_pipe_is_no_file(model: Model, capsys: Captured) -> None:
    """Nobody waits for what never comes."""
    for name in ("x.pt", "tokens.json"):
        os.mkfifo(name)
    torch.save(model.embedded, "y.pt")
    assert [ask("x.pt"), ask("y.pt", tokens="@tokens.json")] == [2, 2]
    assert capsys.readouterr().err.splitlines() == [
        "eagle-contracts: x.pt is no file",
        "eagle-contracts: there is no file tokens.json to read tokens from",
    ]
