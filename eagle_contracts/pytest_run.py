"""The hooks of a contracts run: which files are contracts, when engines start, and that something was checked.

PYTEST_DONT_REWRITE
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest

from eagle_contracts.catalog import PIPELINES, SUFFIXES, Catalog, is_loop, spec_files
from eagle_contracts.devices import CPU, Device, NoGpu, choose
from eagle_contracts.facts import Fact
from eagle_contracts.plan import Case
from eagle_contracts.pytest_items import ContractFile, ContractItem, MistakeItem, Shown, present
from eagle_contracts.pytest_news import News
from eagle_contracts.report.columns import fit, wrapped
from eagle_contracts.report.summary import write_reasons, write_summary
from eagle_contracts.requirements import missing, wanted_in
from eagle_contracts.session import Session
from eagle_contracts.spec.errors import SpecError, SpecIssue
from eagle_contracts.spec.model import Value
from eagle_contracts.spec.overrides import parse_overrides
from eagle_contracts.workers.client import CALL_SECONDS

NOTHING_CHECKED = (
    "contracts: no check was executed (none selected, or every environment unavailable: see -rs), so this run fails"
)
FACTS = "eagle_contracts_facts"
"""The attribute of a report that carries facts from an xdist worker to the process that concludes."""

SINCE = "eagle_contracts_since"
"""The key under which a process of pytest-xdist is told when the run began."""

DEVICE = "eagle_contracts_device"
"""The key under which it is told where engines run: it must not choose for itself."""


class ContractRun:
    """One pytest process's contracts run; pytest calls its hooks by name."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._is_xdist_worker = hasattr(config, "workerinput")
        self._where = config.invocation_params.dir
        self._paths = [config.rootpath / path for path in config.getini("contracts_paths")]
        self.overrides = _overrides(config)
        self.catalog = Catalog(root=config.rootpath, where=self._where, overrides=self.overrides)
        self._checks = 0
        self._nothing_checked = False
        self._facts: list[Fact] = []
        self._told: dict[str, str] = {}
        self._listed: list[str] = []
        self._started: set[str] = set()
        self._unavailable: dict[str, None] = {}
        self.strict: bool = config.getoption("--contracts-strict")
        self._since = _since(config)
        self.device = _device(config)
        limit = config.getoption("--contracts-timeout") or CALL_SECONDS
        self.session = Session(
            config.rootpath, self.overrides, since=self._since, call_seconds=limit, device=self.device
        )
        self._news = News(config)
        self.session.waiting.say = self._news.say
        given = config.getoption("file_or_dir")
        if not given:
            config.args[:] = self._default_arguments()
        if not self._is_xdist_worker:
            self._require(config.getoption("--contracts-require"))
        config.addinivalue_line("markers", "contract: an item of a contract file")
        config.addinivalue_line("markers", "control: a negative control of a contract, which breaks it on purpose")

    def _default_arguments(self) -> list[str]:
        if self._where != self._config.rootpath and self._where.is_relative_to(self._config.rootpath):
            return [str(self._where)]
        there = [path for path in self._paths if path.exists()]
        if not there:
            named = ", ".join(self.catalog.shown(path) for path in self._paths)
            raise pytest.UsageError(
                f"--contracts found no contracts: there is no {named} (ini value contracts_paths); name a folder on "
                f"the command line, or write a first contract there"
            )
        return [str(path) for path in there]

    def _require(self, text: str | None) -> None:
        """Stop the run unless everything required is there; a run that skips it all would look like a green one."""
        if text is None:
            return
        wanted = wanted_in(text)
        if not wanted:
            raise pytest.UsageError(
                "--contracts-require names nothing: write gpu, an environment, an engine or a package"
            )
        places = [Path(os.path.abspath(self._where / str(one).partition("::")[0])) for one in self._config.args]
        files = spec_files([place for place in places if place.exists()], self._paths)
        problems = missing(wanted, files, self.catalog, self.session)
        if problems:
            raise pytest.UsageError("--contracts-require: " + "; ".join(problems))

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a process of pytest-xdist when the run began, so that `--contracts-fresh` observes once for them all."""
        node.workerinput[SINCE] = self._since
        node.workerinput[DEVICE] = self.device.to_json()
        self._news.follow(node)

    def pytest_collect_file(self, file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
        """Take every YAML file under a contracts path, beside or below a pipeline, or named on the command line."""
        if file_path.suffix not in SUFFIXES or not self._is_ours(file_path, parent):
            return None
        return ContractFile.from_parent(parent, path=file_path, run=self)

    def _is_ours(self, path: Path, parent: pytest.Collector) -> bool:
        if any(path.is_relative_to(folder) for folder in self._paths):
            return True
        if any((path.parent / name).is_file() for name in PIPELINES):
            return True
        return parent.session.isinitpath(path)

    def pytest_ignore_collect(self, collection_path: Path) -> bool | None:
        """Leave a link to a folder that holds it alone: every pipeline in it would run again and again."""
        return True if is_loop(collection_path) else None

    def names_in(self, path: Path) -> list[str]:
        """Return the names of the items of a file that the command line asks for."""
        split = [str(argument).partition("::") for argument in self._config.args]
        return [name for file, _, name in split if name and Path(os.path.abspath(self._where / file)) == path]

    def told(self, error: SpecError, path: Path) -> str:
        """Return a file's mistakes; those that another item tells are only named."""
        own = self.catalog.shown(path)
        tellers = {issue: self._teller(issue, own) for issue in error.issues}
        text = [issue.render() for issue, teller in tellers.items() if teller == own]
        self._told.update((issue.render(), own) for issue, teller in tellers.items() if teller == own)
        elsewhere = [(issue, teller) for issue, teller in tellers.items() if teller != own]
        if elsewhere:
            issue, teller = elsewhere[0]
            text.append(
                f"{own}:1:1: not checked: {issue.position.full} is wrong\n"
                f"  {teller}::specification says what is wrong there"
            )
        return "\n".join(text)

    def _teller(self, issue: SpecIssue, own: str) -> str:
        """Return the file whose item tells a mistake: the one that it is in, if it is collected, else the first."""
        place = self.catalog.absolute(issue.position.path)
        if self._is_collected(place):
            return issue.position.path
        return self._told.get(issue.render(), own)

    def _is_collected(self, place: Path) -> bool:
        """Tell whether a file is a contract or a pipeline in the whole of what the command line names."""
        if place.suffix not in SUFFIXES or self.session.home in place.parents:
            return False
        return any(place.is_relative_to(os.path.abspath(self._where / str(one))) for one in self._config.args)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, None, None]:
        """Keep what stands for a wrong file out of every selection: as with a module that fails to import."""
        places = {item: place for place, item in enumerate(items)}
        kept = [item for item in items if isinstance(item, MistakeItem)]
        items[:] = [item for item in items if not isinstance(item, MistakeItem)]
        yield
        others = [places.get(item, -1) for item in items]
        items[:] = [*kept, *items]
        if others == sorted(others):
            items.sort(key=lambda item: places.get(item, -1))

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Where nothing is to be run, note what is wrong: no item will say it."""
        if self._config.getoption("collectonly"):
            self._listed = [item.text for item in session.items if isinstance(item, MistakeItem)]

    def pytest_report_header(self) -> list[str]:
        """Say where engines run, if that was chosen, and what is overridden, since then no negative control runs."""
        lines = wrapped(f"contracts: device {self.device.why}") if self.device.why else []
        if self.overrides:
            listed = ", ".join(f"{key}={_flow(value)}" for key, value in self.overrides.items())
            lines += wrapped(f"contracts: overridden for every pipeline: {listed}; negative controls are not run")
        return lines

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Start the engines of the selected items before the first one, outside output capture."""
        cases = _cases(session.items)
        if not cases or self._config.getoption("collectonly") or self._is_xdist_worker:
            return
        if session.testsfailed and not self._config.getoption("continue_on_collection_errors"):
            return
        self._say_starting(self.session.start(cases))

    def _say_starting(self, labels: list[str]) -> None:
        new = [label for label in labels if label not in self._started]
        self._started.update(new)
        if new:
            self._news.say(f"starting {', '.join(new)} (an import takes several seconds)")

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> None:
        """Queue the next item's observation while this one is judged; with xdist nobody knows more than the next."""
        if self._is_xdist_worker:
            self._say_starting(self.session.start(_cases([item, *([nextitem] if nextitem else [])])))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Let a contract's report show its verdict."""
        report = yield
        present(report, item, call.excinfo.value if call.excinfo else None)
        if isinstance(item, (ContractItem, MistakeItem)):
            setattr(report, FACTS, list(item.facts) if report.when == "setup" else [])
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count the checks that were executed, here or in another process, and keep what they found out."""
        if hasattr(report, FACTS) and report.failed and isinstance(report.longrepr, str):
            report.longrepr = cast(Any, Shown(report.longrepr, report.location[0], report.location[1] or 0))
        for fact in getattr(report, FACTS, ()):
            self._facts.append(Fact.from_json(fact))
        if report.when == "call" and any(name == "contract" for name, _ in report.user_properties):
            self._checks += 1
        if hasattr(report, FACTS) and report.skipped and isinstance(report.longrepr, tuple):
            self._unavailable[report.longrepr[2].removeprefix("Skipped: ")] = None

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a run that executed no check: a green run that checked nothing is what this tool exists against."""
        self._news.close()
        if self._listed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if self._is_xdist_worker or self._config.getoption("collectonly"):
            return
        if not self._checks and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            self._nothing_checked = True
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say why a run without a check failed, and what is wrong with files that were only listed."""
        for text in self._listed:
            terminalreporter.write_line(text, red=True)
        if self._nothing_checked:
            for line in wrapped(NOTHING_CHECKED):
                terminalreporter.write_line(line, red=True)
            write_reasons(list(self._unavailable), terminalreporter.write_line)

        write_summary(self._facts, terminalreporter.write_line, terminalreporter.section)

    def pytest_unconfigure(self) -> None:
        """End all workers."""
        self.session.close()
        self._news.close()


def _since(config: pytest.Config) -> float:
    """Return since when observations may be read: from ever, or from this run's own start, in all its processes."""
    if not config.getoption("--contracts-fresh"):
        return 0.0
    return float(getattr(config, "workerinput", {}).get(SINCE, time.time()))


def _device(config: pytest.Config) -> Device:
    told = getattr(config, "workerinput", {}).get(DEVICE)
    if told is not None:
        return Device(**told)
    try:
        return choose(config.getoption("--contracts-device") or CPU.kind)
    except NoGpu as error:
        raise pytest.UsageError(str(error)) from error


def _overrides(config: pytest.Config) -> Mapping[str, Value]:
    try:
        return parse_overrides(config.getoption("--contracts-set"))
    except SpecError as error:
        raise pytest.UsageError(fit(error.render())) from error


def _cases(items: list[pytest.Item]) -> list[Case]:
    return [item.case for item in items if isinstance(item, ContractItem)]


def _flow(value: Value) -> str:
    from eagle_contracts.spec.flow import show

    return show(value.data)
