"""The repository's own conftest. It holds no plugin: contracts are collected here as anywhere, by the entry point."""

from __future__ import annotations

import signal
from importlib.util import find_spec
from pathlib import Path

HERE = Path(__file__).parent


def pytest_configure() -> None:
    """Let what tests start be interrupted: `&` and `nohup` hand on that interrupts are ignored."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_report_header() -> str | None:
    """Say so where the package that is tested is another checkout's: an easy mistake with two of them."""
    spec = find_spec("eagle_contracts")
    if spec is None or spec.origin is None or Path(spec.origin).is_relative_to(HERE):
        return None
    return f"eagle-contracts: what runs is {Path(spec.origin).parent}, not this checkout; set PYTHONPATH to change that"
