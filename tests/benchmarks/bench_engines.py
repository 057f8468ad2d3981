"""What a run on SGLang costs: a cold worker beside the bare import, its further observations, and a whole pipeline."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from eagle_contracts.plan import Case
from eagle_contracts.project import home_folder
from eagle_contracts.session import Session
from eagle_contracts.workers.environments import Resolved

from ..engines.stories import ROOT, cases_in
from .table import Measured, show

REPEATS = 3
IMPORTS = 9
"""A minute in imports of SGLang, which take some seven seconds on an idle machine."""
PIPELINE = ROOT / "contracts" / "kimi_k25"
CAPTURE = PIPELINE / "sglang_capture_offset.yaml"
ENVIRONMENT = "sglang-0.5.23"
BARE = """
import sys
sys.path.append(sys.argv[1])
from eagle_contracts.subjects import sglang_cpu
sglang_cpu.before_import()
from sglang.srt.model_executor import model_runner
"""
"""The import of SGLang's own model runner, and what it needs to be imported on a machine without a GPU."""


def project(folder: Path) -> Path:
    """A project with this checkout's environments and nothing else in its folder."""
    home = home_folder(folder, {})
    home.mkdir(parents=True)
    (home / "env").symlink_to((home_folder(ROOT) / "env").resolve())
    return folder


def cases_of(session: Session) -> list[Case]:
    """The contract's cases in one environment: its promise and its controls."""
    return [case for case in cases_in(CAPTURE, session) if case.environment.name == ENVIRONMENT]


def bare_import(found: Resolved) -> float:
    """Seconds of a process that imports the model runner and ends."""
    start = time.perf_counter()
    environ = {**os.environ, **found.env, "CUDA_VISIBLE_DEVICES": ""}
    command = [*found.command, "-c", BARE, str(ROOT)]
    subprocess.run(command, env=environ, check=True, capture_output=True)
    return time.perf_counter() - start


def cold(folder: Path) -> tuple[float, list[float]]:
    """Seconds to the first observation of a new worker, whose twin is there already, and of each one after it."""
    shutil.rmtree(home_folder(folder, {}) / "store", ignore_errors=True)
    session = Session(folder, {})
    try:
        taken = []
        for case in cases_of(session):
            start = time.perf_counter()
            session.observe(case)
            taken.append(time.perf_counter() - start)
    finally:
        session.close()
    return taken[0], taken[1:]


def test_a_cold_worker_costs_little_more_than_its_engines_import(tmp_path: Path) -> None:
    """The engine is imported once; after that an observation is a forked child of a warm process."""
    folder = project(tmp_path)
    session = Session(folder, {})
    [first, *_] = cases_of(session)
    found = session.engines.environment(first.pipeline, first.environment)
    assert isinstance(found, Resolved), found
    session.observe(first)  # writes the twin, and fills the file system's caches
    session.close()
    turns = [(bare_import(found), cold(folder)) for _ in range(REPEATS)]
    rows = [
        Measured(
            what=f"{ENVIRONMENT} worker, cold, to its first observation",
            ours=[ours for _, (ours, _) in turns],
            plain=[theirs for theirs, _ in turns],
            budget=1.5,
        ),
        Measured(
            what="a further observation of it",
            ours=[seconds for _, (_, later) in turns for seconds in later],
            budget=2.5,
        ),
    ]
    show(rows)
    assert rows[0].value <= 2.0, "far beyond the budget"
    assert rows[1].within


def run_contracts(folder: Path, environ: Mapping[str, str]) -> float:
    """Seconds of `pytest --contracts` over the whole pipeline; nothing that it observes is kept yet."""
    start = time.perf_counter()
    command = [sys.executable, "-m", "pytest", "--contracts", str(PIPELINE), "-q", "-p", "no:cacheprovider"]
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return time.perf_counter() - start


def test_the_pipelines_contracts_run_within_a_minute(tmp_path: Path) -> None:
    """All contracts of Kimi-K2.5 with their controls, on an empty store and without twins, and once more kept.

    The minute is one of an idle machine of two cores. On a busy one the run is held against the bare import beside it.
    """
    folder = project(tmp_path)
    environ = {"EAGLE_CONTRACTS_HOME": str(home_folder(folder, {})), "PYTHONPATH": str(ROOT)}
    session = Session(folder, {})
    [first, *_] = cases_of(session)
    found = session.engines.environment(first.pipeline, first.environment)
    session.close()
    assert isinstance(found, Resolved), found
    before = bare_import(found)
    ours = [run_contracts(ROOT, environ)]
    imports = [before, bare_import(found)]
    rows = [
        Measured(what=f"the contracts of {PIPELINE.name}, empty store", ours=ours, budget=60),
        Measured(what="the same, by the bare import of SGLang", ours=ours, plain=imports, budget=IMPORTS),
        Measured(what="the same, all kept", ours=[run_contracts(ROOT, environ) for _ in range(2)], budget=15),
    ]
    show(rows)
    assert rows[0].within or rows[1].within
    assert rows[2].within
