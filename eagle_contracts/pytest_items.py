"""Contract files and their cases as pytest's collectors and items. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import pytest

from eagle_contracts.catalog import PIPELINES, unreadable_beside
from eagle_contracts.judge import judge
from eagle_contracts.plan import Case, Planner
from eagle_contracts.report.columns import fit
from eagle_contracts.report.terminal import render
from eagle_contracts.spec.errors import SpecError, fail
from eagle_contracts.spec.model import Contract
from eagle_contracts.verdict import Verdict

if TYPE_CHECKING:
    from eagle_contracts.pytest_run import ContractRun


class Unproven(pytest.PytestWarning):
    """A contract without a negative control: it has not been shown that it can fail."""


class NotPassed(Exception):
    """Carries a rendered verdict to pytest."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


class Crash(NamedTuple):
    """Where a report failed and its first line, as pytest's summary and JUnit ask for them."""

    path: str
    lineno: int
    message: str


class Shown:
    """A rendered verdict as pytest shows it: whole in its place, by its first line in the summary."""

    def __init__(self, text: str, path: str, line: int) -> None:
        self.text = text
        self.reprcrash = Crash(path, line, text.partition("\n")[0])

    def toterminal(self, tw: Any) -> None:
        """Write the text."""
        for line in self.text.splitlines():
            tw.line(line)

    def __str__(self) -> str:
        return self.text


class ContractFile(pytest.File):
    """A contract or a pipeline file; what is wrong with it becomes one item, so that the others still run."""

    def __init__(self, *, run: ContractRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a contract's cases; a pipeline file yields nothing unless it is wrong."""
        try:
            items = list(self._items())
        except SpecError as error:
            yield from self._mistake(fit(self.run.told(error, self.path)))
            return
        yield from items
        for path in unreadable_beside(self.path.parent) if self._is_pipeline() else ():
            text = f"{self.run.catalog.shown(path)}:1:1: is no file: a contract cannot be read from it"
            yield MistakeItem.from_parent(self, name=path.name, text=text)

    def _mistake(self, text: str) -> Iterator[pytest.Item]:
        """Yield one item for a wrong file, and the items in it that were asked for by their ids: they are wrong too."""
        for name in dict.fromkeys(["specification", *self.run.names_in(self.path)]):
            yield MistakeItem.from_parent(self, name=name, nodeid=f"{self.nodeid}::{name}", text=text)

    def _is_pipeline(self) -> bool:
        return self.path.name in PIPELINES

    def _items(self) -> Iterator[pytest.Item]:
        if self._is_pipeline():
            self._pipeline()
            return
        contract, pipeline = self.run.catalog.contract(self.path), self._pipeline()
        _check_marks(contract)
        labels = {name: self.run.session.label(pipeline, e) for name, e in pipeline.environments.items()}
        planner = Planner(
            pipeline=pipeline,
            labels=labels,
            overrides=self.run.overrides,
            siblings=self.run.catalog.siblings(self.path.parent),
            device=self.run.device.kind,
        )
        for case in planner.cases(contract):
            # Given as text, pytest reads the bracket as it reads it in its cache: else 9.2's `--lf` finds no such item.
            nodeid = f"{self.nodeid}::{case.name}"
            yield ContractItem.from_parent(self, name=case.name, nodeid=nodeid, case=case, run=self.run)

    def _pipeline(self) -> Any:
        return self.run.catalog.pipeline_beside(self.path)


def _check_marks(contract: Contract) -> None:
    """Raise `SpecError` at a mark that pytest refuses: in a collector that would end the whole run."""
    for index, name in enumerate(contract.marks):
        try:
            getattr(pytest.mark, name)
        except (pytest.fail.Exception, pytest.PytestUnknownMarkWarning) as error:
            raise fail(
                contract.document.at("marks", index),
                f"pytest does not know the mark '{name}'",
                f"register it in pytest's configuration: markers = {name}: WHAT IT MEANS",
            ) from error


def present(report: pytest.TestReport, item: pytest.Item, error: BaseException | None) -> None:
    """Show a verdict in place of a traceback of ours, and a skip at the contract that is skipped.

    pytest asks an item how to show an exception of its call only, and a verdict may come from set-up.
    """
    text = error.text if isinstance(error, NotPassed) else _stopped(item, error)
    if text:
        report.longrepr = cast(Any, Shown(text, report.location[0], report.location[1] or 0))
    elif report.skipped and isinstance(item, ContractItem) and isinstance(report.longrepr, tuple):
        report.longrepr = (str(item.path), item.case.contract.in_position.line, report.longrepr[2])


def _stopped(item: pytest.Item, error: BaseException | None) -> str:
    """Say that an item was failed from outside while it waited, as pytest-timeout does; our frames tell nobody that."""
    if not isinstance(item, ContractItem) or not isinstance(error, pytest.fail.Exception):
        return ""
    return f"error(interrupted): {error.msg}; {item.run.session.waiting.interrupted or 'nothing was waited for'}"


class MistakeItem(pytest.Item):
    """Stands for a file that cannot be read as what it should be."""

    def __init__(self, *, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text = text
        self.facts: tuple[Mapping[str, Any], ...] = ()
        self.add_marker("contract")

    def setup(self) -> None:
        """End in pytest's error outcome: nothing was checked."""
        raise NotPassed(self.text)

    def runtest(self) -> None:
        """Never reached."""

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the item comes from."""
        return self.path, None, f"{self.path.stem} {self.name}"


class ContractItem(pytest.Item):
    """One case. It is judged in set-up, so that an error is pytest's error and an unavailable engine a skip."""

    def __init__(self, *, case: Case, run: ContractRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case, self.run = case, run
        self._verdict: Verdict | None = None
        self._is_rerun = False
        self.facts: tuple[Mapping[str, Any], ...] = ()
        self.add_marker("contract")
        if case.is_control:
            self.add_marker("control")
        for mark in case.contract.marks:
            self.add_marker(mark)

    def setup(self) -> None:
        """Judge the case; a rerun asks the engine again where it gave no result, and for nothing else."""
        if self._is_rerun:
            self.run.session.forget_failures()
        self._is_rerun = True
        self._verdict = judge(self.case, self.run.session)
        self.facts = self._verdict.facts
        properties = self._verdict.properties or {"contract": self.case.contract.name}
        self.user_properties[:] = [pair for pair in self.user_properties if pair[0] not in properties]
        self.user_properties.extend(properties.items())
        if self._verdict.status == "error":
            raise NotPassed(render(self._verdict))
        if self._verdict.status == "unavailable" and not self.run.strict:
            pytest.skip(f"unavailable({self._verdict.reason}): {self._verdict.sentence}")
        self._expect_known_violation(self._verdict)
        # Where it fails it has been shown that it can, and the warning, made an error, would hide the diagnosis.
        if self._verdict.status == "passed" and not self.case.contract.must_catch and not self.run.strict:
            self._warn_unproven()

    def _expect_known_violation(self, verdict: Verdict) -> None:
        """Turn a violation that the contract knows into an expected failure, and its absence into a failure."""
        known = self.case.contract.known_violation
        if known is None or self.case.is_control or not known.concerns(self.case.environment, verdict.engine_version):
            return
        if verdict.status == "passed" or verdict.diagnosis == known.diagnosis:
            gone = f"known violation {known.diagnosis} of {known.engine} ({known.link}), declared at {known.position}"
            self.add_marker(pytest.mark.xfail(reason=gone, strict=True, raises=NotPassed))

    def _warn_unproven(self) -> None:
        name = self.case.contract.name
        warning = Unproven(f"{name} is unproven: it has no must_catch, so nothing shows that it can fail")
        try:
            self.warn(warning)
        except Unproven as error:
            raise NotPassed(f"{error} (and warnings are errors in this run)") from error

    def runtest(self) -> None:
        """Fail where a promise is not kept."""
        assert self._verdict is not None
        if self._verdict.status != "passed":
            raise NotPassed(render(self._verdict))
        if self.run.strict and not self.case.contract.must_catch:
            raise NotPassed(f"unproven: {self.case.contract.name} has no must_catch, so nothing shows that it can fail")

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the line of the promise or of the control."""
        place = self.case.control.position if self.case.control else self.case.expectations[0].position
        return self.path, place.line - 1, f"{self.case.contract.name} {self.name}"
