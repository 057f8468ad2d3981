"""The contract files of a project, found and read as a contracts run finds and reads them. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eagle_contracts.adapters import adapter_issues
from eagle_contracts.inspection import pipeline_issues, promised_issues
from eagle_contracts.plan import Siblings
from eagle_contracts.spec.document import Document
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail, in_order, suggest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract, Pipeline, Value
from eagle_contracts.spec.position import Position
from eagle_contracts.targets import twin_of
from eagle_contracts.twin import Twin

SUFFIXES: Final = (".yaml", ".yml")
PIPELINES: Final = ("pipeline.yaml", "pipeline.yml")
_NOT_ENTERED: Final = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}", "__pycache__")
"""The folders that pytest does not enter unless it is told otherwise."""


@dataclass(slots=True, kw_only=True)
class Catalog:
    """Reads each pipeline and contract once, and finds all that can be said of them without an engine.

    `root` is the project's, messages show paths from `where`, `overrides` are values of the command line.
    """

    root: Path
    where: Path
    overrides: Mapping[str, Value] = field(default_factory=dict)
    _pipelines: dict[Path, Pipeline | SpecError] = field(default_factory=dict)
    _contracts: dict[Path, Contract | SpecError] = field(default_factory=dict)
    _twins: dict[Path, Twin] = field(default_factory=dict)

    def shown(self, path: Path) -> str:
        """Return a path as messages show it: from where the command was started, if it lies below."""
        for base in (self.where, self.root):
            if path.is_relative_to(base):
                return str(path.relative_to(base))
        return str(path)

    def absolute(self, shown: str) -> Path:
        """Return the path that messages show so."""
        there = [base / shown for base in (self.where, self.root) if (base / shown).exists()]
        return there[0] if there else self.where / shown

    def pipeline_beside(self, path: Path) -> Pipeline:
        """Return the pipeline that a contract belongs to; raises `SpecError`."""
        folder = path.parent
        if folder not in self._pipelines:
            file = self._pipeline_file(path)
            try:
                self._pipelines[folder] = self._load_pipeline(file)
            except SpecError as error:
                self._pipelines[folder] = error
        found = self._pipelines[folder]
        if isinstance(found, SpecError):
            raise found
        return found

    def contract(self, path: Path) -> Contract:
        """Return a contract, checked against the pipeline beside it; raises `SpecError`."""
        if path not in self._contracts:
            try:
                self._contracts[path] = self._load_contract(path)
            except SpecError as error:
                self._contracts[path] = error
        found = self._contracts[path]
        if isinstance(found, SpecError):
            raise found
        return found

    def twin(self, pipeline: Pipeline) -> Twin:
        """Return the twin of a pipeline that was found right."""
        if pipeline.folder not in self._twins:
            self._twins[pipeline.folder] = twin_of(pipeline)
        return self._twins[pipeline.folder]

    def siblings(self, folder: Path) -> Siblings:
        """Return how contracts of one folder are found by name."""

        def find(name: str, named: Value) -> Contract:
            there = {p.stem: p for p in sorted(folder.iterdir()) if p.suffix in SUFFIXES and p.name not in PIPELINES}
            if name not in there:
                message = f"no contract beside this one is called '{clip(name)}'"
                raise fail(named.position, message, suggest(name, there, "contracts"))
            return self.contract(there[name])

        return find

    def _load_pipeline(self, file: Path) -> Pipeline:
        pipeline = load_pipeline(file, self.shown(file))
        issues = pipeline_issues(pipeline, self.root, self.overrides)
        if issues:
            raise SpecError(in_order(issues))
        return pipeline

    def _load_contract(self, path: Path) -> Contract:
        """Read a contract; beside a wrong pipeline, raise that one's mistakes and those of the contract alone."""
        try:
            pipeline = self.pipeline_beside(path)
        except SpecError as error:
            try:
                load_contract(path, None, self.shown(path), more=adapter_issues)
            except SpecError as own:
                raise SpecError([*error.issues, *own.issues]) from None
            raise
        twin = self.twin(pipeline)

        def more(document: Document) -> Iterator[SpecIssue]:
            yield from adapter_issues(document)
            yield from promised_issues(document, pipeline, twin.layers, self.overrides)

        return load_contract(path, pipeline, self.shown(path), more=more)

    def _pipeline_file(self, path: Path) -> Path:
        there = [path.parent / name for name in PIPELINES if (path.parent / name).is_file()]
        if len(there) > 1:
            start = Position(path=self.shown(path), line=1, column=1)
            raise fail(start, f"{' and '.join(PIPELINES)} stand beside this file", "keep one of them")
        if not there:
            raise fail(
                Position(path=self.shown(path), line=1, column=1),
                f"there is no {PIPELINES[0]} beside this file",
                "every YAML file under a contracts path is a contract or the pipeline beside it: write the "
                "pipeline, or move this file elsewhere",
            )
        return there[0]


def spec_files(paths: Sequence[Path], contracts_paths: Sequence[Path]) -> tuple[Path, ...]:
    """Return the YAML files that a contracts run takes from files and folders, each once, in its order.

    Those are the files named, and in folders those below a contracts path or beside a pipeline.
    """
    out: dict[Path, None] = {}
    for path in paths:
        for file in _below(path):
            named = file == path
            inside = any(file.is_relative_to(folder) for folder in contracts_paths)
            if named or inside or any((file.parent / name).is_file() for name in PIPELINES):
                out[file] = None
    return tuple(out)


def is_loop(folder: Path) -> bool:
    """Tell whether a folder is a link back to one that holds it: what lies in it would be found again and again."""
    if not folder.is_symlink():
        return False
    real = folder.resolve()
    return any(parent.resolve() == real for parent in folder.absolute().parents)


def unreadable_beside(folder: Path) -> Iterator[Path]:
    """Yield what is named as a contract and is no file, such as a link to nothing: pytest passes it by."""
    for path in sorted(folder.iterdir()):
        if path.suffix in SUFFIXES and not path.is_file() and not path.is_dir():
            yield path


def _below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.suffix in SUFFIXES:
            yield path
        return
    if is_loop(path):
        return
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        if not entry.is_dir() or not any(fnmatch.fnmatch(entry.name, pattern) for pattern in _NOT_ENTERED):
            yield from _below(entry)
