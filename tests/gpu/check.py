"""Run every contract of this repository on a GPU, and print a table of what came of it.

    make gpu-check                          the engines' own kernels, then SGLang's torch forms
    make gpu-rehearsal                      the same twins and the same table on a CPU

Exit status: 0 if everything passed, 1 if something did not or nothing was checked, 2 without a GPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_contracts.devices import Device, NoGpu, choose, gpus
from eagle_contracts.engines import Unrunnable
from eagle_contracts.judge import judge
from eagle_contracts.plan import Case
from eagle_contracts.session import Session
from eagle_contracts.spec.errors import SpecError
from tests.engines.stories import ROOT, cases_in

KINDS = ("cuda", "cuda-reference")
REHEARSAL = Device(for_kernels=True, why="cpu (a rehearsal: twins for kernels, and no GPU)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One line of the table; `engine` is what the worker said of itself."""

    contract: str
    item: str
    verdict: str
    seconds: float
    engine: dict[str, Any]


def rows(session: Session, files: Sequence[Path]) -> Iterator[tuple[Row, str]]:
    """Judge the cases of contract files one after another; yield each row with the first line of what is wrong."""
    for file in files:
        for case in cases_in(file, session):
            begun = time.monotonic()
            verdict = judge(case, session)
            found = verdict.status if verdict.reason == "" else f"{verdict.status}({verdict.reason})"
            wrong = "" if verdict.status == "passed" else verdict.sentence.partition("\n")[0]
            seconds = time.monotonic() - begun
            yield (
                Row(
                    contract=f"{file.parent.name}/{file.stem}",
                    item=case.name,
                    verdict=found,
                    seconds=seconds,
                    engine=_engine(session, case),
                ),
                wrong,
            )


def _engine(session: Session, case: Case) -> dict[str, Any]:
    """Return what the case's worker said of itself, where it observed anything."""
    try:
        return dict(session.observe(case).engine)
    except (SpecError, Unrunnable):
        return {}


def line(row: Row) -> str:
    """Return a row as the table shows it."""
    return f"{row.contract:38} {row.item:48} {row.verdict:22} {row.seconds:7.1f} s"


def machine(rows: Sequence[Row]) -> list[str]:
    """Return what has been run on: each GPU with its driver, and each environment's versions."""
    lines = [f"{gpu.name}, {gpu.total / 1024:.0f} GiB, driver {gpu.driver}" for gpu in gpus()] or ["no GPU"]
    for row in rows:
        told = {key: row.engine[key] for key in ("sglang", "transformers", "torch", "cuda", "gpu") if key in row.engine}
        if told:
            lines.append(", ".join(f"{key} {value}" for key, value in told.items()))
    return list(dict.fromkeys(lines))


def check(device: Device, files: Sequence[Path]) -> list[Row]:
    """Run contract files on a device, printing as it goes; return the rows."""
    print(f"\non {device.why}")
    session, done = Session(ROOT, {}, device=device), []
    try:
        for row, wrong in rows(session, files):
            done.append(row)
            print(line(row), flush=True)
            if wrong:
                print(f"    {wrong}", flush=True)
    finally:
        session.close()
    print("\n".join(machine(done)))
    return done


def main(arguments: Sequence[str] | None = None) -> int:
    """Find a GPU, run all contracts on it, and say how many passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rehearse", action="store_true", help="on a CPU, to see that this script works")
    parser.add_argument("files", nargs="*", type=Path, help="contract files (default: all of this repository)")
    given = parser.parse_args(arguments)
    files = given.files or sorted(p for p in ROOT.glob("contracts/*/*.yaml") if p.name != "pipeline.yaml")
    try:
        devices = [REHEARSAL] if given.rehearse else [choose(kind) for kind in KINDS]
    except NoGpu as error:
        print(f"Nothing was checked: {error}")
        return 2
    done = [row for device in devices for row in check(device, [file.absolute() for file in files])]
    passed = sum(row.verdict == "passed" for row in done)
    print(f"\n{passed} of {len(done)} passed")
    return 0 if done and passed == len(done) else 1


if __name__ == "__main__":
    raise SystemExit(main())
