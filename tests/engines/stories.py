"""What the tests on real engines share: one pool that remembers, and pipelines as a user writes them."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagle_contracts.judge import judge
from eagle_contracts.plan import Case, cases_of
from eagle_contracts.report.terminal import render
from eagle_contracts.session import Session
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.overrides import parse_overrides
from eagle_contracts.verdict import Verdict
from eagle_contracts.workers.pool import Engine, Pool, Result

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


class RememberingPool(Pool):
    """A pool that makes equal calls once for all sessions: an observation depends on its parameters alone."""

    def __init__(self) -> None:
        super().__init__()
        self._made: dict[tuple[object, ...], Future[Result]] = {}
        self._lock = threading.RLock()

    def start(self, engine: Engine) -> Future[Result]:
        """Start an engine once, whichever thread asks first."""
        with self._lock:
            return super().start(engine)

    def submit(self, engine: Engine, function: str, params: Mapping[str, Any]) -> Future[Result]:
        """Return the earlier future of an equal call."""
        key = (engine.key, function, json.dumps(params, sort_keys=True))
        with self._lock:
            if key not in self._made:
                self._made[key] = super().submit(engine, function, params)
            return self._made[key]


@dataclass(frozen=True)
class Engines:
    """The engines that all tests share, and the folder that holds environments and twins."""

    pool: RememberingPool
    home: Path

    def session(self, *overrides: str, root: Path = ROOT) -> Session:
        """Return a session over the shared engines."""
        session = Session(root, parse_overrides(overrides), pool=self.pool)
        session.home = self.home
        return session

    def judged_all(self, runs: Mapping[str, Sequence[Any]], only: str = "") -> dict[str, dict[str, Verdict]]:
        """Judge several runs side by side, each a folder and its overrides, so that no core stands idle."""
        with ThreadPoolExecutor() as side_by_side:
            judged = side_by_side.map(lambda run: self.judged(*run, only=only), runs.values())
        return dict(zip(runs, judged, strict=True))

    def judged(self, folder: Path, *overrides: str, only: str = "") -> dict[str, Verdict]:
        """Return the verdicts of a folder's contract by case name, those with `only` in their name."""
        session = self.session(*overrides)
        cases = [case for case in cases_in(folder, session) if only in case.name]
        session.start(cases)
        with ThreadPoolExecutor() as side_by_side:
            verdicts = side_by_side.map(lambda case: judge(case, session), cases)
        return {case.name: verdict for case, verdict in zip(cases, verdicts, strict=True)}


def cases_in(folder: Path, session: Session) -> list[Case]:
    """Return the cases of a folder's one contract, its files named as pytest names them."""
    (contract,) = [path for path in folder.glob("*.yaml") if path.name != "pipeline.yaml"]
    pipeline = load_pipeline(folder / "pipeline.yaml", _shown(folder / "pipeline.yaml"))
    return cases_of(load_contract(contract, pipeline, _shown(contract)), pipeline, {}, session.overrides)


def _shown(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else path.name


def pipeline(
    folder: Path,
    target: Mapping[str, Any],
    *,
    trained: Sequence[int],
    ids: Mapping[str, Sequence[int]],
    overlay: str | None = None,
) -> Path:
    """Write a pipeline and its contract as a user does; `trained` are layer outputs, `ids` are by SGLang version."""
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
    (folder / "capture.yaml").write_text(CONTRACT)
    return folder


def summary(verdicts: Mapping[str, Verdict]) -> dict[str, str]:
    """Return each case's diagnosis, or its status where there is none."""
    return {name: verdict.diagnosis or verdict.status for name, verdict in verdicts.items()}


def advice(verdict: Verdict) -> list[list[int]]:
    """Return the lists that a verdict says to write."""
    return [list(ids) for ids in verdict.remedy.lists] if verdict.remedy else []


def text(verdict: Verdict) -> str:
    """Return a verdict as it is printed, on one line, for sentences that wrap."""
    return " ".join(render(verdict).split())
