"""What a person waits for at the command line."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from ..unit.cli_story import CAPTURE, ROOT, write_project
from .table import Measured, show

REPEATS = 11
CONTRACTS = 100


def command(folder: Path, *words: str) -> float:
    """Seconds of one command, Python's own start included."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    taken = time.perf_counter() - start
    assert done.returncode == 0, done.stdout + done.stderr
    return taken


def test_a_hundred_contracts_are_validated_in_half_a_second(tmp_path: Path) -> None:
    """Beside the import of what reading any YAML against a schema needs."""
    there = write_project(tmp_path)
    for number in range(CONTRACTS - 1):
        (there / f"c{number}.yaml").write_text(CAPTURE)
    turns = [
        (command(tmp_path, "-m", "eagle_contracts", "validate"), command(tmp_path, "-c", "import jsonschema, yaml"))
        for _ in range(REPEATS)
    ]
    ours = [one for one, _ in turns]
    rows = [
        Measured(what=f"validate {CONTRACTS} contracts", ours=ours, budget=0.5),
        Measured(what="the same, by the import of its libraries", ours=ours, plain=[one for _, one in turns], budget=6),
    ]
    show(rows)
    assert rows[0].within
