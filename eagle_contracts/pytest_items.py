"""Contract files and their cases as pytest's collectors and items. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from eagle_contracts.judge import judge
from eagle_contracts.plan import Case, cases_of
from eagle_contracts.report.terminal import render
from eagle_contracts.spec.errors import SpecError
from eagle_contracts.spec.load import load_contract
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


class ContractFile(pytest.File):
    """A contract or a pipeline file; what is wrong with it becomes one item, so that the others still run."""

    def __init__(self, *, run: ContractRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.run = run

    def collect(self) -> Iterator[pytest.Item]:
        """Yield a contract's cases; a pipeline file yields nothing unless it is wrong."""
        try:
            yield from self._items()
        except SpecError as error:
            yield MistakeItem.from_parent(self, name="specification", text=error.render())

    def _items(self) -> Iterator[pytest.Item]:
        pipeline = self._pipeline()
        if self.path == self.path.parent / pipeline.document.path.name:
            return
        contract = load_contract(self.path, pipeline, self.run.shown(self.path))
        labels = {name: self.run.session.label(pipeline, e) for name, e in pipeline.environments.items()}
        for case in cases_of(contract, pipeline, labels, self.run.overrides):
            yield ContractItem.from_parent(self, name=case.name, case=case, run=self.run)

    def _pipeline(self) -> Any:
        return self.run.pipeline_beside(self.path)


class MistakeItem(pytest.Item):
    """Stands for a file that cannot be read as what it should be."""

    def __init__(self, *, text: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.text = text
        self.add_marker("contract")

    def setup(self) -> None:
        """End in pytest's error outcome: nothing was checked."""
        raise NotPassed(self.text)

    def runtest(self) -> None:
        """Never reached."""

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the message alone: a user's mistake needs no traceback of ours."""
        return excinfo.value.text if isinstance(excinfo.value, NotPassed) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the item comes from."""
        return self.path, None, self.name


class ContractItem(pytest.Item):
    """One case. It is judged in set-up, so that an error is pytest's error and an unavailable engine a skip."""

    def __init__(self, *, case: Case, run: ContractRun, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case, self.run = case, run
        self._verdict: Verdict | None = None
        self.add_marker("contract")
        if case.is_control:
            self.add_marker("control")
        for mark in case.contract.marks:
            self.add_marker(mark)

    def setup(self) -> None:
        """Judge the case."""
        self._verdict = judge(self.case, self.run.session)
        properties = self._verdict.properties or {"contract": self.case.contract.name}
        self.user_properties.extend(properties.items())
        if self._verdict.status == "error":
            raise NotPassed(render(self._verdict))
        if self._verdict.status == "unavailable":
            pytest.skip(f"unavailable({self._verdict.reason}): {self._verdict.sentence}")
        if not self.case.contract.must_catch:
            self.warn(
                Unproven(
                    f"{self.case.contract.name} is unproven: it has no must_catch, so nothing shows that it can fail"
                )
            )

    def runtest(self) -> None:
        """Fail where a promise is not kept."""
        assert self._verdict is not None
        if self._verdict.status != "passed":
            raise NotPassed(render(self._verdict))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Return the rendered verdict alone."""
        return excinfo.value.text if isinstance(excinfo.value, NotPassed) else super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Name the line of the promise or of the control."""
        place = self.case.control.position if self.case.control else self.case.expectations[0].position
        return self.path, place.line - 1, f"{self.case.contract.name} {self.name}"
