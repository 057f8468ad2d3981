"""From a file, a checkpoint and tokens to an answer for each slot; needs torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import torch

from eagle_contracts.cli import USAGE
from eagle_contracts.cli.checkpoint import Checkpoint, read_checkpoint
from eagle_contracts.cli.finals import Finals
from eagle_contracts.cli.rows import Told, tell
from eagle_contracts.cli.tensors import FLOATS, Stored, one_of, tensors_in
from eagle_contracts.cli.words import Complaint

MOST_ROWS: Final = 1024
"""More rows than this are not read: they say nothing that these do not."""
_TOKENS_LIMIT: Final = 64 << 20
_DTYPES: Final = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
_INTEGERS: Final = ("I64", "I32", "I16")


def identified(file: Path, folder: Path, tokens: str, slot: int | None, name: str | None) -> dict[str, object]:
    """Return what the tensor's slots are, as plain data; raises `Complaint`."""
    stored = one_of(tensors_in(file), name, file)
    ids = _tokens(tokens)
    checkpoint = read_checkpoint(folder)
    slots = _slots(stored, checkpoint, slot)
    _check(stored, ids, checkpoint)
    chosen = _chosen(len(ids))
    embedded = _embedded([ids[row] for row in chosen], checkpoint)
    gain = checkpoint.norm.vector().to(torch.float32) if checkpoint.norm else None
    states = {k: _state(stored, k, chosen, checkpoint) for k in slots}
    beside = _Beside(ids, chosen, checkpoint)
    dtype = _DTYPES[stored.kind]
    told = [(k, tell(x, embedded, gain, checkpoint, dtype, beside, chosen)) for k, x in states.items()]
    if gain is not None:
        refine = Finals(gain=gain, checkpoint=checkpoint, ids=ids, rows=chosen)
        told = [(k, refine(k, states, one)) for k, one in told]
    whole = len(slots) == 1 and stored.shape[-1] == checkpoint.hidden
    return {
        "file": str(file),
        "name": stored.name,
        "shape": list(stored.shape),
        "dtype": stored.kind,
        "rows": len(ids),
        "rows_read": len(chosen),
        "slots": [_plain(None if whole else k, one) for k, one in told],
    }


def _plain(slot: int | None, told: Told) -> dict[str, object]:
    return {
        "slot": slot,
        "answer": told.answer,
        "sentence": told.sentence,
        "evidence": list(told.evidence),
        "open": told.open,
        "embedding_error": told.embedding_error if math.isfinite(told.embedding_error) else None,
        "rms": list(told.rms) if told.rms else None,
    }


def _state(stored: Stored, k: int, rows: Sequence[int], of: Checkpoint) -> torch.Tensor:
    x = stored.rows(rows, (k * of.hidden, (k + 1) * of.hidden))
    bad = ~torch.isfinite(x)
    if bool(bad.any()):
        row, column = (int(number) for number in bad.nonzero()[0])
        raise Complaint(
            f"{stored.name} of {stored.path} has {int(bad.sum())} values that are no finite numbers among those read, "
            f"the first in row {rows[row]}, column {k * of.hidden + column}: nothing can be told of it"
        )
    return x


def _slots(stored: Stored, of: Checkpoint, slot: int | None) -> list[int]:
    """Return the slots to answer for; raises `Complaint` for a tensor that holds no whole ones."""
    shape = " x ".join(map(str, stored.shape)) or "a single number"
    if stored.kind not in FLOATS:
        raise Complaint(f"{stored.name} of {stored.path} holds {stored.kind}; hidden states are {', '.join(FLOATS)}")
    if len(stored.shape) < 2 or any(size != 1 for size in stored.shape[:-2]):
        raise Complaint(f"{stored.name} of {stored.path} is {shape}, and [tokens, width] of one request is wanted")
    count, rest = divmod(stored.shape[-1], of.hidden)
    if rest or not count:
        raise Complaint(
            f"{stored.name} of {stored.path} is {stored.shape[-1]} wide, which is no whole number of slots of "
            f"hidden_size {of.hidden}"
        )
    if slot is None:
        most = (of.layers or 0) + 2
        if count > max(most, 3):
            raise Complaint(f"{stored.name} has {count} slots of {of.hidden}: choose one with --slot", USAGE)
        return list(range(count))
    if not 0 <= slot < count:
        raise Complaint(f"there is no slot {slot}: {stored.name} has slots 0 to {count - 1}", USAGE)
    return [slot]


def _check(stored: Stored, ids: Sequence[int], of: Checkpoint) -> None:
    rows, vocabulary = stored.shape[-2], of.embedding.shape[0]
    if rows != len(ids):
        raise Complaint(f"{stored.name} of {stored.path} has {rows} rows, and {len(ids)} tokens are given")
    for place, token in enumerate(ids):
        if not 0 <= token < vocabulary:
            raise Complaint(
                f"token {token} (number {place}) is out of range: {of.embedding.name} has {vocabulary} rows"
            )


def _embedded(ids: Sequence[int], of: Checkpoint) -> torch.Tensor:
    different = sorted(set(ids))
    places = {token: place for place, token in enumerate(different)}
    rows = of.embedding.rows(different)
    bad = ~torch.isfinite(rows).all(1)
    if bool(bad.any()):
        token = different[int(bad.nonzero()[0])]
        raise Complaint(
            f"{of.embedding.name} of {of.embedding.path} has values that are no finite numbers in the row of token "
            f"{token}: nothing can be told by it"
        )
    return rows[[places[token] for token in ids]]


class _Beside:
    """The embedding of tokens beside those of the chosen rows, read once and only if asked for."""

    def __init__(self, ids: Sequence[int], chosen: Sequence[int], of: Checkpoint) -> None:
        self._ids, self._chosen, self._of = ids, chosen, of
        self._read: dict[int, tuple[list[int], torch.Tensor]] = {}

    def __call__(self, offset: int) -> tuple[list[int], torch.Tensor]:
        """Return which of the chosen rows have a token so many places further on, and its embedding for each."""
        if offset not in self._read:
            there = [n for n, row in enumerate(self._chosen) if 0 <= row + offset < len(self._ids)]
            tokens = [self._ids[self._chosen[n] + offset] for n in there]
            self._read[offset] = there, _embedded(tokens, self._of) if tokens else torch.empty(0, self._of.hidden)
        return self._read[offset]


def _chosen(rows: int) -> list[int]:
    if rows <= MOST_ROWS:
        return list(range(rows))
    return [place * rows // MOST_ROWS for place in range(MOST_ROWS)]


def _tokens(text: str) -> list[int]:
    """Read token ids from the command line or a file; raises `Complaint`."""
    if text.startswith("@"):
        return _token_file(Path(text[1:]))
    try:
        ids = [int(word) for word in text.split(",")]
    except ValueError:
        raise Complaint(f"--tokens takes 1,2,3 or @FILE, not '{text[:60]}'", USAGE) from None
    return ids


def _token_file(path: Path) -> list[int]:
    if path.suffix in (".pt", ".pth", ".safetensors"):
        return _token_tensor(path)
    if not path.is_file():
        raise Complaint(f"there is no file {path} to read tokens from", USAGE)
    if path.stat().st_size > _TOKENS_LIMIT:
        raise Complaint(f"{path} is larger than {_TOKENS_LIMIT >> 20} MiB: it is no list of tokens")
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Complaint(f"{path} cannot be read as a JSON list of tokens: {error}") from None
    if isinstance(data, list) and len(data) == 1 and isinstance(data[0], list):
        data = data[0]
    if not isinstance(data, list) or not data or not all(type(token) is int for token in data):
        raise Complaint(f"{path} is no list of whole numbers, such as [1, 2, 3]")
    return data


def _token_tensor(path: Path) -> list[int]:
    tensors = {name: one for name, one in tensors_in(path).items() if one.kind in _INTEGERS}
    if len(tensors) > 1:
        tensors = {name: tensors[name] for name in ("input_ids", "token_ids", "tokens") if name in tensors} or tensors
    if len(tensors) != 1:
        found = ", ".join(list(tensors)[:8]) or "none"
        raise Complaint(f"{path} must hold one tensor of whole numbers, the tokens (it holds: {found})")
    [one] = tensors.values()
    if not one.shape or any(size != 1 for size in one.shape[:-1]) or math.prod(one.shape) > _TOKENS_LIMIT >> 3:
        raise Complaint(f"{one.name} of {path} is {' x '.join(map(str, one.shape))}, and one row of tokens is wanted")
    ids: list[int] = one.vector().tolist()
    return ids
