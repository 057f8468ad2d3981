"""What the tests on real engines share: one set of workers and one store, and pipelines as a user writes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_contracts.devices import CPU, Device
from eagle_contracts.judge import judge
from eagle_contracts.plan import Case, Planner
from eagle_contracts.report.terminal import render
from eagle_contracts.session import Session
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract, Value
from eagle_contracts.spec.overrides import parse_overrides
from eagle_contracts.verdict import Verdict
from eagle_contracts.workers.pool import Engine, Pool, Result, Work

ROOT = Path(__file__).parents[2]
CONTRACT = """\
spec: 1
why: The same list of ids names different layers in different engines.
between: [serving config, target forward]
run: sglang.capture
in: serve
with: {layer_ids: $draft.layer_ids}
expect: [{slots: $trained.taps}]
must_catch: [{break: {shift: {with.layer_ids: +1}}, as: shifted}]
"""


class SharedPool(Pool):
    """A pool that sessions in several threads may use: whoever asks first starts an engine's thread."""

    def __init__(self) -> None:
        super().__init__()
        self._lock = threading.Lock()

    def submit(self, engine: Engine, work: Work) -> Future[Result]:
        """Queue work, one caller at a time."""
        with self._lock:
            return super().submit(engine, work)


@dataclass(frozen=True)
class Engines:
    """The workers that all tests share, and a project whose store keeps what they observed."""

    pool: SharedPool
    project: Path

    def session(self, *overrides: str, device: Device = CPU) -> Session:
        """Return a session over the shared workers."""
        return Session(self.project, parse_overrides(overrides), pool=self.pool, device=device)

    def judged_all(self, runs: Mapping[str, Sequence[Any]], only: str = "") -> dict[str, dict[str, Verdict]]:
        """Judge several runs side by side, each a contract's file and its overrides, so that no core stands idle."""
        with ThreadPoolExecutor() as side_by_side:
            judged = side_by_side.map(lambda run: self.judged(*run, only=only), runs.values())
        return dict(zip(runs, judged, strict=True))

    def judged(self, contract: Path, *overrides: str, only: str = "") -> dict[str, Verdict]:
        """Return the verdicts of a contract by case name, those with `only` in their name."""
        session = self.session(*overrides)
        return judged_cases([case for case in cases_in(contract, session) if only in case.name], session)


def judged_cases(cases: Sequence[Case], session: Session) -> dict[str, Verdict]:
    """Judge cases of one session side by side."""
    session.start(cases)
    with ThreadPoolExecutor() as side_by_side:
        verdicts = side_by_side.map(lambda case: judge(case, session), cases)
    return {case.name: verdict for case, verdict in zip(cases, verdicts, strict=True)}


def cases_in(file: Path, session: Session) -> list[Case]:
    """Return the cases of a contract, its files named as pytest names them."""
    beside = file.with_name("pipeline.yaml")
    pipeline = load_pipeline(beside, _shown(beside, session.root))

    def sibling(name: str, named: Value) -> Contract:
        other = file.with_name(f"{name}.yaml")
        return load_contract(other, pipeline, _shown(other, session.root))

    planner = Planner(
        pipeline=pipeline, labels={}, overrides=session.overrides, siblings=sibling, device=session.device.kind
    )
    return planner.cases(load_contract(file, pipeline, _shown(file, session.root)))


def _shown(path: Path, root: Path) -> str:
    return next((str(path.relative_to(base)) for base in (ROOT, root) if path.is_relative_to(base)), path.name)


def pipeline(
    folder: Path,
    target: Mapping[str, Any],
    *,
    trained: Sequence[int],
    ids: Mapping[str, Sequence[int]],
    overlay: str | None = None,
) -> Path:
    """Write a pipeline and its contract as a user does, and return the contract's file.

    `trained` are layer outputs, `ids` are by SGLang version.
    """
    folder.mkdir(parents=True)
    (folder / "target.config.json").write_text(json.dumps(target))
    lines = [
        "spec: 1",
        "target: {config: target.config.json}",
        f"trained: {{taps: {{layer_outputs: {list(trained)}}}}}",
    ]
    lines += ["environments:"]
    where = ""
    if overlay is not None:
        (folder / "overlay.py").write_text(overlay)
        where = ", overlay: overlay.py"
    for version, listed in ids.items():
        entry = (
            f"role: serve, engine: sglang=={version}, lock: sglang-{version}, set: {{draft.layer_ids: {list(listed)}}}"
        )
        lines.append(f"  sglang-{version}: {{{entry}{where}}}")
    (folder / "pipeline.yaml").write_text("\n".join(lines) + "\n")
    contract = folder / "capture.yaml"
    contract.write_text(CONTRACT)
    return contract


def summary(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """Return each case's diagnosis, or its status where there is none."""
    return {name: verdict.diagnosis or verdict.status for name, verdict in verdicts.items()}


def advice(verdict: Verdict) -> list[list[int]]:
    """Return the lists that a verdict says to write."""
    return [list(ids) for ids in verdict.remedy.lists] if verdict.remedy else []


def text(verdict: Verdict) -> str:
    """Return a verdict as it is printed, on one line, for sentences that wrap."""
    return " ".join(render(verdict).split())
