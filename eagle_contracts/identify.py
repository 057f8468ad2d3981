"""Which state is this tensor?

A slot is compared with every candidate by the *median over tokens* of the row's relative L2 error, so that the few rows
of attention sinks decide nothing. It is identified when the best candidate is within tolerance and at least five times
better than the next. Runs inside workers: Python 3.10, the standard library and torch only.

How a sketch keeps this fast without letting a wrong candidate win is told in `sketch`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Container, Iterable, Sequence
from typing import Final, Literal, NamedTuple

import torch
from torch import Tensor

from eagle_contracts.identification import Candidate, Identification, Indivisible, Match, NonFinite, Outcome, Side
from eagle_contracts.sketch import SAFETY, SKETCH_WIDTH, sample, sampled

__all__ = [
    "Candidate",
    "Identification",
    "Indivisible",
    "Match",
    "NonFinite",
    "Reference",
    "Side",
    "identify",
    "identify_all",
    "split_slots",
    "tolerance_for",
]

MARGIN: Final = 5.0
EXACT_WIDTH: Final = 256  # at most this wide, or with fewer rows than below, reading everything is cheap
EXACT_ROWS: Final = 32
SINK_FACTOR: Final = 10.0
MOST_SINKS: Final = 8
SHOWN_VALUES: Final = 5
CHUNK: Final = 1 << 20  # elements held as float32 at a time
_TINY: Final = 1e-30
_HUGE: Final = 1e18

Declared = int | Literal["final_normed"] | None
Pairs = Sequence[tuple[Candidate, Tensor]]


def split_slots(tensor: Tensor, width: int) -> list[Tensor] | Indivisible:
    """Cut a concatenation [T, S * width] into its S slots [T, width], or say how it does not divide."""
    total = tensor.shape[1]
    if total == 0 or total % width:
        return Indivisible(total=total, width=width, whole=total // width, rest=total % width)
    return list(torch.tensor_split(tensor, total // width, dim=1))


def tolerance_for(dtype: torch.dtype) -> float:
    """The default tolerance: 1e-4 for float32 and float64, 2e-2 for bfloat16 and float16.

    Raises ValueError for any other type, since nothing has been measured for it.
    """
    if dtype in (torch.float32, torch.float64):
        return 1e-4
    if dtype in (torch.bfloat16, torch.float16):
        return 2e-2
    raise ValueError(f"no default tolerance for {dtype}; expected float32, float64, bfloat16 or float16")


class _Exact(NamedTuple):
    error: float
    row_errors: list[float]
    norms: list[float]


class Reference:
    """The first-pass candidates of one forward pass, with the sketch that several slots share."""

    __slots__ = ("_sketch", "candidates", "shape", "tensors")

    def __init__(self, pairs: Pairs) -> None:
        """Take candidates [T, H], all of one shape. Raises ValueError if there are none or their shapes differ."""
        if not pairs:
            raise ValueError("no candidates to compare with")
        self.candidates = [candidate for candidate, _ in pairs]
        self.tensors = [_detached(tensor) for _, tensor in pairs]
        self.shape = _shape(self.tensors[0])
        self._sketch: tuple[Tensor, Tensor] | None = None
        for candidate, tensor in pairs:
            _require_shape(candidate, tensor, self.shape)

    def sketch(self) -> tuple[Tensor, Tensor] | None:
        """The sampled values of all candidates [C, R, s] and their norms [C, R]; None if all is to be read anyway."""
        rows, width = self.shape
        if rows < EXACT_ROWS or width <= EXACT_WIDTH:
            return None
        if self._sketch is None:
            values = sampled(self.tensors)
            self._sketch = values, torch.linalg.vector_norm(values, dim=2).clamp_min_(_TINY)
        return self._sketch

    def index_of(self, declared: Declared) -> int | None:
        """Where the declared state stands among the candidates. Raises ValueError if it is not one of them."""
        if declared is None:
            return None
        for index, candidate in enumerate(self.candidates):
            if candidate.kind == declared or (candidate.kind == "state" and candidate.k == declared):
                return index
        raise ValueError(f"the declared state {declared!r} is not among the candidates")


def identify(
    slot: Tensor,
    candidates: Pairs | Reference,
    *,
    tolerance: float,
    second_pass: Pairs | Callable[[], Pairs] = (),
    declared: Declared = None,
) -> Identification:
    """Say which candidate the slot [T, H] holds; see `identify_all`, which shares the sketch among slots."""
    [found] = identify_all([slot], candidates, tolerance=tolerance, second_pass=second_pass, declared=[declared])
    return found


def identify_all(
    slots: Sequence[Tensor],
    candidates: Pairs | Reference,
    *,
    tolerance: float,
    second_pass: Pairs | Callable[[], Pairs] = (),
    declared: Sequence[Declared] = (),
) -> list[Identification]:
    """Say which candidate each slot [T, H] of one forward pass holds.

    `second_pass` (candidates of the same shape, or a function that makes them) is looked at only if no first-pass
    candidate is within tolerance. A non-finite slot or candidate is an outcome, never a comparison; candidates that the
    sketch rules out are searched in their sampled values only. A row in which the candidate is zero counts as error 1,
    or 0 if the slot's is zero too. Slots beyond the declared ones are identified without a declaration. Raises
    ValueError if a slot is not two-dimensional, or if a declared state is not a candidate.
    """
    reference = candidates if isinstance(candidates, Reference) else Reference(candidates)
    later = functools.cache(second_pass) if callable(second_pass) else second_pass
    wanted = [*declared, *[None] * (len(slots) - len(declared))]
    begun = [_begin(slot, reference, tolerance, want) for slot, want in zip(slots, wanted, strict=False)]
    _first_pass([one for one in begun if isinstance(one, _Search)], reference)
    return [one if isinstance(one, Identification) else _end(one, later) for one in begun]


def _begin(slot: Tensor, reference: Reference, tolerance: float, declared: Declared) -> _Search | Identification:
    """Return the search of a slot that can be compared, or what it is if it cannot."""
    target = reference.index_of(declared)
    shape = _shape(slot)
    base = functools.partial(Identification, tolerance=tolerance, shape=shape, expected_shape=reference.shape)
    if shape[1] != reference.shape[1]:
        return base(outcome="wrong_width")
    if shape[0] != reference.shape[0] or not shape[0]:
        return base(outcome="wrong_rows")
    x = _detached(slot).float()
    norms = torch.linalg.vector_norm(x, dim=1).tolist()
    if not math.isfinite(sum(norms)):
        if found := _non_finite("slot", x):
            return base(outcome="non_finite", non_finite=found)
        norms = torch.linalg.vector_norm(x.double(), dim=1).tolist()
    return _Search(x, norms, reference, tolerance, target, base)


def _first_pass(searches: Sequence[_Search], reference: Reference) -> None:
    """Compare every slot with the candidates that the sketch leaves, and with all where that gives no clear answer."""
    sketch = reference.sketch() if searches else None
    if sketch:
        _look(searches, *sketch)
    for search in searches:
        if not search.looked or not (search.bad or search.outcome() == "identified"):
            search.compare(range(len(reference.candidates)))


def _look(searches: Sequence[_Search], values: Tensor, sizes: Tensor) -> None:
    """Compare each slot with one candidate, then with those that the sample does not put beyond reach of it."""
    x = sampled([search.x for search in searches])
    distances = torch.linalg.vector_norm(values - x[:, None], dim=3)
    seen = distances / sizes
    for search, own, scores in zip(searches, seen, seen.clamp(max=1.0).sum(dim=2).tolist(), strict=True):
        if math.isfinite(sum(scores)) and max(search.norms) < _HUGE:  # else a value, or a square, may not be finite
            search.seen, search.scores = own, scores
            search.compare([search.nearest_seen(()) if search.declared is None else search.declared])
    limits = torch.tensor([search.limits() for search in searches], device=distances.device)
    beyond = (distances > limits[:, None]).sum(dim=2).tolist()
    rows = distances.shape[2]
    for search, counts in zip(searches, beyond, strict=True):
        if search.looked:
            search.compare(index for index, count in enumerate(counts) if count < rows - rows // 16)


def _end(search: _Search, second_pass: Pairs | Callable[[], Pairs]) -> Identification:
    if not search.bad and search.outcome() == "unknown":
        search.second_pass(second_pass() if callable(second_pass) else second_pass)
    return search.base(outcome="non_finite", non_finite=search.bad) if search.bad else _report(search)


class _Search:
    """One slot's comparisons so far: exact ones by index, first-pass candidates before those of the second pass.

    `seen` are the sampled errors by candidate and row, and `scores` their sums, a row that is far off counting as one:
    a guess, which decides nothing.
    """

    __slots__ = (
        *("bad", "base", "candidates", "declared", "exact", "norms", "reference"),
        *("scores", "seen", "tensors", "tolerance", "x"),
    )

    def __init__(
        self,
        x: Tensor,
        norms: list[float],
        reference: Reference,
        tolerance: float,
        declared: int | None,
        base: Callable[..., Identification],
    ) -> None:
        self.x, self.norms, self.reference, self.tolerance = x, norms, reference, tolerance
        self.declared, self.base = declared, base
        self.candidates = list(reference.candidates)
        self.tensors = list(reference.tensors)
        self.exact: dict[int, _Exact] = {}
        self.seen: Tensor | None = None
        self.scores: list[float] = []
        self.bad: NonFinite | None = None

    @property
    def looked(self) -> bool:
        """Whether the sketch was of use, so that one candidate has been compared at least."""
        return self.seen is not None

    def limits(self) -> list[float]:
        """How far, by sampled row, a sampled difference may be that decides nothing."""
        rows, width = self.reference.shape
        chosen = sample(rows, width, self.x.device).rows
        if self.bad or not self.looked:
            return [math.inf] * len(chosen)
        error = MARGIN * min(exact.error for exact in self.exact.values())
        reach = SAFETY * error / (1.0 - error) * math.sqrt(SKETCH_WIDTH / width) if error < 1.0 else math.inf
        return [self.norms[row] * reach for row in chosen]

    def nearest_seen(self, but: Container[int]) -> int:
        """The candidate nearest in the sample."""
        return min((index for index in range(len(self.scores)) if index not in but), key=self.scores.__getitem__)

    def compare(self, indices: Iterable[int]) -> None:
        for index in indices:
            if index not in self.exact and not self.bad:
                found = _compare(self.x, self.tensors[index])
                if not math.isfinite(sum(found.row_errors)):
                    self.bad = _non_finite(self.candidates[index].label, self.tensors[index].float())
                self.exact[index] = found

    def second_pass(self, pairs: Pairs) -> None:
        for candidate, tensor in pairs:
            _require_shape(candidate, tensor, self.reference.shape)
            self.candidates.append(candidate)
            self.tensors.append(_detached(tensor))
            self.compare([len(self.candidates) - 1])

    def matches(self) -> list[Match]:
        """What was compared, nearest first, and the nearest of what the sketch ruled out."""
        found = [self.match(index) for index in self.exact]
        best = min(match.error for match in found)
        if self.seen is not None and len(found) < len(self.seen):
            index = self.nearest_seen(self.exact)
            estimate = max(_median(self.seen[index].tolist()), MARGIN * best)
            found.append(self.match(index, estimate))
        return sorted(found, key=lambda match: match.error)

    def match(self, index: int, estimate: float | None = None) -> Match:
        c = self.candidates[index]
        error = self.exact[index].error if estimate is None else estimate
        return Match(label=c.label, kind=c.kind, k=c.k, error=error, exact=estimate is None)

    def outcome(self) -> Outcome:
        errors = sorted(exact.error for exact in self.exact.values())
        if errors[0] > self.tolerance:
            return "unknown"
        return "identified" if _clear(errors) else "inconclusive"


def _clear(errors: Sequence[float]) -> bool:
    """Whether the smallest of the sorted errors leads by the margin; two perfect fits are a tie, not a lead."""
    return len(errors) == 1 or (errors[0] < errors[1] and errors[0] * MARGIN <= errors[1])


def _report(search: _Search) -> Identification:
    declared = search.declared
    matches = search.matches()
    nearest = min(search.exact, key=lambda index: search.exact[index].error)
    best = search.exact[nearest]
    worst = max(best.row_errors)
    norms = search.norms
    shown = {nearest} if declared is None else {nearest, declared}
    sides = {index: _side(search.tensors[index], search.exact[index].norms) for index in shown}
    return search.base(
        outcome=search.outcome(),
        best=matches[0],
        second=matches[1] if len(matches) > 1 else None,
        declared=None if declared is None else search.match(declared),
        errors=tuple((match.label, match.error) for match in matches if match.exact),
        worst_row=(best.row_errors.index(worst), worst),
        sink_rows=_sinks(norms),
        slot_side=_side(search.x, norms),
        best_side=sides[nearest],
        declared_side=None if declared is None else sides[declared],
        tolerance_would_help=nearest == declared and _clear([match.error for match in matches]),
    )


def _side(tensor: Tensor, norms: list[float]) -> Side:
    first = tuple(tensor[0, :SHOWN_VALUES].tolist())
    return Side(first_values=first, median_row_norm=_median(norms), frobenius=math.hypot(*norms))


def _sinks(norms: list[float]) -> tuple[int, ...]:
    limit = SINK_FACTOR * _median(norms)
    return tuple(row for row, norm in enumerate(norms) if norm > limit)[:MOST_SINKS]


def _median(values: list[float]) -> float:
    return sorted(values)[(len(values) - 1) // 2]


def _compare(x: Tensor, h: Tensor) -> _Exact:
    """Compare all rows, once more in float64 where a square may have left the range of float32."""
    distances, norms = _row_norms(x, h, torch.float32)
    if not math.isfinite(sum(distances) + sum(norms)) or not all(norms):
        distances, norms = _row_norms(x, h, torch.float64)
    errors = [_ratio(distance, norm) for distance, norm in zip(distances, norms, strict=True)]
    return _Exact(_median(errors), errors, norms)


def _row_norms(x: Tensor, h: Tensor, dtype: torch.dtype) -> tuple[list[float], list[float]]:
    """The rows' distances and norms, a chunk at a time so that little is held in float32."""
    distances: list[float] = []
    norms: list[float] = []
    step = max(1, CHUNK // x.shape[1])
    for start in range(0, x.shape[0], step):
        a = x[start : start + step].to(dtype)
        b = h[start : start + step].to(device=x.device, dtype=dtype)
        distances += torch.linalg.vector_norm(a - b, dim=1).tolist()
        norms += torch.linalg.vector_norm(b, dim=1).tolist()
    return distances, norms


def _ratio(distance: float, norm: float) -> float:
    if norm == 0.0:
        return 0.0 if distance == 0.0 else 1.0
    return distance / norm


def _non_finite(where: str, tensor: Tensor) -> NonFinite | None:
    bad = (~torch.isfinite(tensor)).nonzero()
    if not len(bad):
        return None
    row, column = bad[0].tolist()
    return NonFinite(where=where, count=len(bad), row=row, column=column)


def _detached(tensor: Tensor) -> Tensor:
    """The tensor without its graph; most have none, and to ask is cheaper than to detach."""
    return tensor.detach() if tensor.requires_grad else tensor


def _shape(tensor: Tensor) -> tuple[int, int]:
    if tensor.dim() != 2:
        raise ValueError(f"expected a tensor [tokens, width], found {list(tensor.shape)}")
    return tensor.shape[0], tensor.shape[1]


def _require_shape(candidate: Candidate, tensor: Tensor, shape: tuple[int, int]) -> None:
    if tensor.shape != shape:
        raise ValueError(f"candidate {candidate.label} is {list(tensor.shape)}, expected {list(shape)}")
