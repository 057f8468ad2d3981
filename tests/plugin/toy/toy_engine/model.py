"""The toy's forward pass and its identification, in plain Python: importing torch would cost every story seconds."""

from __future__ import annotations

import math
import os
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

from eagle_contracts.identification import Identification, Match, Side

LAYERS = 10
ROWS = 6
WIDTH = 8
TOLERANCE = 1e-4
State = list[list[float]]


def states() -> list[State]:
    """Return h[0] to h[10], each [6 tokens, 8 wide] and different from its neighbours by far."""
    draw = random.Random(20_251_130)
    return [[[draw.gauss(0.0, 1.0 + k) for _ in range(WIDTH)] for _ in range(ROWS)] for k in range(LAYERS + 1)]


def capture(ids: list[int], offset: int) -> list[State] | dict[str, Any]:
    """Return the states for a list of ids, in layer order, or a refusal: too low an id is refused, too high skipped."""
    wanted = sorted(i + offset for i in ids)
    if wanted and wanted[0] < 0:
        return {"refused": refusal(f"list index {wanted[0]} is below the first layer")}
    stream = states()
    return [stream[k] for k in wanted if k <= LAYERS]


def seen(held: list[State], declared: list[Any] | None) -> dict[str, Any]:
    """Return what an adapter returns of the states in its slots."""
    wanted, stream = declared or [], states()
    return {
        "refused": None,
        "rows": ROWS,
        "total_width": WIDTH * len(held),
        "width": WIDTH,
        "slots": [identify(state, stream, wanted[n] if n < len(wanted) else None) for n, state in enumerate(held)],
    }


def refusal(message: str) -> dict[str, str]:
    """Return an exception of the engine's own, as a result."""
    return {
        "stage": "the forward pass",
        "type": "IndexError",
        "message": message,
        "where": "toy/model.py:12",
        "line": "raise IndexError(message)",
    }


def misbehave(act: str, out: Path) -> dict[str, Any] | None:
    """Do what the act says; None where the observation then goes its way."""
    print(f"the toy is about to {act}", flush=True)
    if act == "refuse":
        return {"refused": refusal("the toy was told to refuse")}
    if act == "full":
        (out / "record.json").symlink_to("/dev/full")
        return None
    if act == "nap":
        (out / "slots.json").write_text("[[", encoding="utf-8")
        time.sleep(float(os.environ.get("NAP_OF_TOY", "0")))
        return None
    if act == "flake":
        if Path("flaked").exists():
            return None
        Path("flaked").write_text("once", encoding="utf-8")
    if act == "die_once":
        (out / "files").mkdir()
        if Path("died").exists():
            return None
        Path("died").touch()
    if act == "full_in_worker":
        Path("/dev/full").write_text("more", encoding="utf-8")
    if act.startswith("die"):
        os.kill(os.getpid(), signal.SIGKILL)
    if act == "kill_worker":
        os.kill(os.getppid(), signal.SIGKILL)
    if act == "programs":
        note_programs()
    if act in ("hang", "kill_worker", "programs"):
        time.sleep(300)
    raise RuntimeError(f"the toy was told to {act}")


def note_programs() -> None:
    """Start two programs, one in a session of its own, and write them into the diary as processes of the toy's."""
    plain = subprocess.Popen(["sleep", "300"])
    apart = subprocess.Popen(["sleep", "300"], start_new_session=True)
    with open(os.environ["DIARY_OF_TOY"], "a") as file:
        file.write(f"{plain.pid} plain\n{apart.pid} apart\n")


def identify(slot: State, stream: list[State], declared: int | None) -> dict[str, Any]:
    """Compare a slot with every state, as `eagle_contracts.identify` does for tensors."""
    matches = [match(slot, state, k) for k, state in enumerate(stream)]
    best, second = sorted(matches, key=lambda one: one.error)[:2]
    return Identification(
        outcome="identified" if best.error <= TOLERANCE else "unknown",
        tolerance=TOLERANCE,
        shape=(ROWS, WIDTH),
        expected_shape=(ROWS, WIDTH),
        best=best,
        second=second,
        declared=None if declared is None else matches[declared],
        slot_side=side(slot),
        declared_side=None if declared is None else side(stream[declared]),
        tolerance_would_help=best.k == declared,
    ).to_json()


def match(slot: State, state: State, k: int) -> Match:
    """Return the median over tokens of the row's relative L2 error."""
    errors = [norm([a - b for a, b in zip(x, h, strict=True)]) / norm(h) for x, h in zip(slot, state, strict=True)]
    return Match(label=label(k), kind="state", k=k, error=sorted(errors)[(ROWS - 1) // 2])


def label(k: int) -> str:
    """Name a state as reports do."""
    return f"h[{k}]" + (" (embedding)" if k == 0 else "")


def side(state: State) -> Side:
    """Return what a person compares by eye."""
    norms = [norm(row) for row in state]
    return Side(first_values=tuple(state[0][:5]), median_row_norm=sorted(norms)[(ROWS - 1) // 2], frobenius=norm(norms))


def norm(row: list[float]) -> float:
    """Return the L2 norm."""
    return math.sqrt(sum(value * value for value in row))
