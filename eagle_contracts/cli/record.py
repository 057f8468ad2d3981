"""A run as plain data, for programs: every item with its outcome, and one conclusion a pipeline. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from typing import Any

import pytest

from eagle_contracts.conclude import conclude
from eagle_contracts.facts import Fact
from eagle_contracts.pytest_run import FACTS


class Recorder:
    """A pytest plugin that keeps what reports say; with pytest-xdist, those of all processes."""

    def __init__(self) -> None:
        self._items: dict[str, dict[str, Any]] = {}
        self._problems: list[str] = []
        self._seconds: dict[str, float] = {}
        self._facts: list[Fact] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the phase that decides: a set-up that does not pass, or the call."""
        self._facts += [Fact.from_json(fact) for fact in getattr(report, FACTS, ())]
        self._seconds[report.nodeid] = self._seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed or report.skipped or (report.when == "call" and report.passed):
            self._items[report.nodeid] = _item(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why something could not be collected."""
        if report.failed:
            self._problems.append(f"{report.nodeid}: {report.longrepr}")

    def to_json(self, exit_code: int) -> dict[str, object]:
        """Return the whole run."""
        return {
            "exit_code": exit_code,
            "items": [{**item, "seconds": round(self._seconds[name], 3)} for name, item in self._items.items()],
            "problems": self._problems,
            "conclusions": [
                {"pipeline": one.pipeline, "outcome": one.outcome, "sentence": one.sentence}
                for one in conclude(self._facts)
            ],
            "notes": list(dict.fromkeys(note for fact in self._facts for note in fact.notes)),
        }


def _item(report: pytest.TestReport) -> dict[str, Any]:
    known = {str(name): value for name, value in report.user_properties}
    text = "" if report.passed else _text(report)
    return {
        "id": report.nodeid,
        "kind": "control" if "control" in report.keywords else "promise",
        "outcome": _outcome(report),
        "contract": known.get("contract"),
        "environment": known.get("environment"),
        "engine": known.get("engine"),
        "diagnosis": known.get("diagnosis") or None,
        "observed": known.get("observed") or None,
        "message": text.partition("\n")[0] or None,
        "text": text or None,
    }


def _outcome(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return "known violation" if report.skipped else "passed"
    if report.failed:
        return "failed" if report.when == "call" else "error"
    if report.skipped:
        return "unavailable" if _text(report).startswith("unavailable(") else "skipped"
    return "passed"


def _text(report: pytest.TestReport) -> str:
    if isinstance(report.longrepr, tuple):
        return report.longrepr[2].removeprefix("Skipped: ")
    return str(report.longrepr)
