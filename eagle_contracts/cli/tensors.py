"""Tensors in files, of which only the rows asked for are read; needs torch. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import itertools
import json
import math
import pickle
import re
import warnings
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from eagle_contracts.cli import USAGE
from eagle_contracts.cli.words import Complaint
from eagle_contracts.spec.errors import suggest

FLOATS: Final = ("F64", "F32", "F16", "BF16")
PICKLES: Final = (".pt", ".pth", ".bin")
_OLD_LIMIT: Final = 256 << 20
_PICKLE_LIMIT: Final = 64 << 20
_HEADER_LIMIT: Final = 100_000_000
"""safetensors' own limit."""
_DTYPES: Final = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
}
_CODES: Final = {dtype: kind for kind, dtype in _DTYPES.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """A tensor in a file: `kind` is safetensors' code of its type.

    `part(a, b, c, d)` reads rows a to b and columns c to d of the last two axes; a single axis is one row.
    """

    name: str
    path: Path
    shape: tuple[int, ...]
    kind: str
    part: Callable[[int, int, int, int], torch.Tensor]

    def rows(self, numbers: Sequence[int], columns: tuple[int, int] | None = None) -> torch.Tensor:
        """Return rows as float32 [rows, columns]; axes before the last two must have length 1."""
        first, last = columns or (0, self.shape[-1])
        return torch.cat([self.part(a, b, first, last) for a, b in _runs(numbers)]).to(torch.float32)

    def vector(self) -> torch.Tensor:
        """Return the one row of a tensor that has only one."""
        return self.part(0, 1, 0, self.shape[-1])[0]


def tensors_in(path: Path) -> Mapping[str, Stored]:
    """Return the tensors of a file by name without reading them; raises `Complaint`."""
    if not path.exists():
        raise Complaint(f"there is no file {path}", USAGE)
    if not path.is_file():
        raise Complaint(f"{path} is no file", USAGE)
    if path.stat().st_size == 0:
        raise Complaint(f"{path} is empty (0 bytes): whatever wrote it did not finish")
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix in PICKLES:
        return _torch(path)
    raise Complaint(f"{path} is neither .safetensors nor .pt: save the tensor as one of them", USAGE)


def one_of(tensors: Mapping[str, Stored], name: str | None, path: Path) -> Stored:
    """Return the tensor of that name, or the only one; raises `Complaint`."""
    if not tensors:
        raise Complaint(f"{path} holds no tensor")
    if name is None and len(tensors) == 1:
        return next(iter(tensors.values()))
    if name is None:
        names = list(tensors)
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        raise Complaint(
            f"{path} holds {len(names)} tensors ({', '.join(names[:8])}{more}): choose one with --name", USAGE
        )
    if name not in tensors:
        raise Complaint(f"{path} has no tensor '{name}': {suggest(name, list(tensors)[:40], 'tensors')}", USAGE)
    return tensors[name]


def safetensors_names(path: Path) -> tuple[str, ...]:
    """Return the names in a safetensors file; raises `Complaint`."""
    return tuple(_safetensors(path))


def _safetensors(path: Path) -> Mapping[str, Stored]:
    """Read a safetensors file's header. The file is not mapped: one larger than memory could not be."""
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > min(size - 8, _HEADER_LIMIT):
                raise ValueError(f"its header would be {length} bytes long")
            header = json.loads(file.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        stored = {name: _entry(path, name, entry, 8 + length, size) for name, entry in entries.items()}
        _check_overlaps(entries)
        return stored
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise Complaint(f"{path} cannot be read as safetensors: {_pointer(path) or _first_line(error)}") from None


def _check_overlaps(entries: Mapping[str, Any]) -> None:
    """Raise `ValueError` where two tensors share bytes: at most one of them is what was written."""
    places = sorted((*entry["data_offsets"], name) for name, entry in entries.items())
    for (_, end, one), (begin, last, other) in itertools.pairwise(places):
        if begin < end and begin < last:
            raise ValueError(f"{one} and {other} overlap")


def _entry(path: Path, name: str, entry: Any, start: int, size: int) -> Stored:
    kind, shape, (begin, end) = str(entry["dtype"]), tuple(entry["shape"]), entry["data_offsets"]
    if not all(type(number) is int and number >= 0 for number in (*shape, begin, end)):
        raise ValueError(f"{name} has no shape")
    dtype = _DTYPES.get(kind)
    if start + end > size or (dtype is not None and math.prod(shape) * dtype.itemsize != end - begin):
        raise ValueError(f"{name} does not fit: the file is cut short or damaged")

    def part(a: int, b: int, c: int, d: int) -> torch.Tensor:
        assert dtype is not None
        return _read(path, start + begin, dtype, shape[-1], (a, b, c, d))

    return Stored(name=name, path=path, shape=shape, kind=kind, part=part)


def _read(path: Path, begin: int, dtype: torch.dtype, width: int, part: tuple[int, int, int, int]) -> torch.Tensor:
    """Read rows and columns of a table of `width` columns that begins at a byte of a file."""
    a, b, c, d = part
    data = bytearray()
    with path.open("rb") as file:
        for row in [a] if (c, d) == (0, width) else range(a, b):
            file.seek(begin + (row * width + c) * dtype.itemsize)
            data += file.read((d - c) * dtype.itemsize * (b - a if (c, d) == (0, width) else 1))
    return torch.frombuffer(data, dtype=dtype).reshape(b - a, d - c)


def _pointer(path: Path) -> str | None:
    with path.open("rb") as file:
        if file.read(34) == b"version https://git-lfs.github.com":
            return "it is a Git LFS pointer, not the file itself; fetch it with `git lfs pull`"
    return None


def _torch(path: Path) -> Mapping[str, Stored]:
    """Read a torch file's tensors, mapped into memory; nothing is unpickled but tensors and plain containers."""
    is_zip = zipfile.is_zipfile(path)
    if not is_zip and path.stat().st_size > _OLD_LIMIT:
        raise Complaint(f"{path} is in torch's old format, which can only be read whole: save it again with torch.save")
    try:
        if is_zip:
            _check_pickle(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of pickles' versions: what matters of those is said below
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True if is_zip else None)
        return {name: _stored(path, name, tensor) for name, tensor in _flat(content)}
    except Complaint:
        raise
    except Exception as error:  # a damaged file makes torch raise nearly anything
        raise Complaint(_unreadable(path, error)) from None


def _check_pickle(path: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        size = max((entry.file_size for entry in archive.infolist() if entry.filename.endswith("data.pkl")), default=0)
    if size > _PICKLE_LIMIT:
        raise Complaint(f"{path} describes its tensors in {size >> 20} MiB of pickle: no file of hidden states does")


def _unreadable(path: Path, error: Exception) -> str:
    named = re.search(r"GLOBAL ([\w.]+)", str(error))
    if named:
        return (
            f"{path} needs unpickling ({named[1]}), which can run code, and is refused: save plain tensors, with "
            "safetensors or as torch.save of a dict of tensors"
        )
    if isinstance(error, pickle.UnpicklingError):
        return f"{path} is no file of plain tensors, or damaged: it would need unpickling, which can run code"
    return f"{path} cannot be read as tensors: {type(error).__name__}: {_first_line(error)}"


def _flat(content: object) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield tensors with the keys and indices that lead to them, depth first.

    A container that stands in several places, or in itself, is entered once: a small pickle can have 2 ** 40 paths.
    """
    entered: set[int] = set()
    waiting: list[tuple[str, object]] = [("", content)]
    while waiting:
        name, one = waiting.pop()
        if isinstance(one, torch.Tensor):
            yield name or "tensor", one
        elif isinstance(one, (Mapping, list, tuple)) and id(one) not in entered:
            entered.add(id(one))
            inner = one.items() if isinstance(one, Mapping) else enumerate(one)
            waiting += reversed([(f"{name}.{key}" if name else str(key), value) for key, value in inner])


def _stored(path: Path, name: str, tensor: torch.Tensor) -> Stored:
    plain = tensor.layout == torch.strided and not tensor.is_quantized and tensor.device.type == "cpu"
    kind = _CODES.get(tensor.dtype, str(tensor.dtype).removeprefix("torch.")) if plain else "no plain values"

    def part(a: int, b: int, c: int, d: int) -> torch.Tensor:
        flat = tensor.detach()[(0,) * (tensor.dim() - 2)] if tensor.dim() > 1 else tensor.detach()[None]
        return flat[a:b, c:d]

    return Stored(name=name, path=path, shape=tuple(tensor.shape), kind=kind, part=part)


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield ranges that cover the numbers in their order."""
    start = 0
    for end in range(1, len(numbers) + 1):
        if end == len(numbers) or numbers[end] != numbers[end - 1] + 1:
            yield numbers[start], numbers[end - 1] + 1
            start = end


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
