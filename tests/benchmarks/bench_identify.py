"""Identification against a plain chunked comparison, side by side in one run.

The design asks for a ratio of 1.5. It is not met at 64 tokens, where about 2 is measured: some 62 small reads and two
dozen small operations a slot weigh as much there as the comparison itself. The ratio falls as the tokens grow.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor

from eagle_contracts.identify import Candidate, identify_all

WIDTH, STATES = 7168, 62
DECLARED = (3, 31, 59)
CHUNK = 1 << 18
BUDGET = 1.5
CEILING = 4.0  # what comparing even a tenth of the other states would exceed


def stream(tokens: int, noise: float) -> tuple[list[Tensor], list[Tensor]]:
    """62 states whose norm grows by 9 % a layer, and the three declared ones as an engine would return them."""
    generator = torch.Generator().manual_seed(0)
    states = [torch.randn(tokens, WIDTH, generator=generator)]
    for _ in range(STATES - 1):
        step = torch.randn(tokens, WIDTH, generator=generator)
        states.append(states[-1] + 0.43 * states[-1].norm() / step.norm() * step)
    slots = [states[k] * (1 + noise * torch.randn(tokens, WIDTH, generator=generator)) for k in DECLARED]
    return states, slots


def plain(x: Tensor, h: Tensor, buffer: Tensor) -> tuple[float, float]:
    """The largest difference and the relative L2 error over the whole tensor, chunk by chunk in one reused buffer."""
    largest = distance = size = 0.0
    for a, b in zip(torch.split(x.view(-1), CHUNK), torch.split(h.view(-1), CHUNK), strict=True):
        part = torch.sub(a, b, out=buffer[: a.numel()])
        distance += float(torch.linalg.vector_norm(part)) ** 2
        size += float(torch.linalg.vector_norm(b)) ** 2
        largest = max(largest, float(part.abs_().max()))
    return largest, (distance / size) ** 0.5


def seconds(work: Callable[[], object]) -> float:
    """How long one call takes."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def measure(tokens: int = 64, noise: float = 1e-6, repeats: int = 31) -> tuple[float, float]:
    """Median seconds of identifying three slots among all states and of comparing them plainly, taken in turns.

    All states are read before each turn, since an engine's forward leaves only the last ones in the caches.
    """
    states, slots = stream(tokens, noise)
    pairs = [(Candidate(label=f"h[{k}]", kind="state", k=k), state) for k, state in enumerate(states)]
    buffer = torch.empty(CHUNK)
    times: tuple[list[float], list[float]] = ([], [])
    works: tuple[Callable[[], object], Callable[[], object]] = (
        lambda: identify_all(slots, pairs, tolerance=1e-4 if noise < 1e-4 else 2e-2, declared=DECLARED),
        lambda: [plain(slot, states[k], buffer) for slot, k in zip(slots, DECLARED, strict=True)],
    )
    for _ in range(repeats):
        for taken, work in zip(times, works, strict=True):
            for state in states:
                state.sum()
            taken.append(seconds(work))
    return statistics.median(times[0]), statistics.median(times[1])


def main() -> float:
    """Print the ratios and return the one that the budget is about."""
    torch.set_num_threads(1)
    ratios = []
    for tokens, noise, repeats in ((64, 1e-6, 31), (64, 1e-2, 31), (256, 1e-6, 11)):
        ours, theirs = measure(tokens, noise, repeats)
        ratios.append(ours / theirs)
        what = f"identify 3 of {STATES}, {tokens} tokens x {WIDTH}, noise {noise:g}"
        print(f"{what}: {ratios[-1]:.2f}x a plain comparison (budget {BUDGET}x), {ours * 1e3:.2f} ms")
    return ratios[0]


def test_identifying_costs_a_few_plain_comparisons() -> None:
    """Identifying reads far less than every state: its time stays within a few plain comparisons."""
    assert main() <= CEILING


if __name__ == "__main__":
    main()
