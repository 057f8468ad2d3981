"""The contract files of a project, found and read as a contracts run finds and reads them. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from eagle_contracts.plan import Siblings
from eagle_contracts.spec.errors import SpecError, fail, suggest
from eagle_contracts.spec.load import load_contract, load_pipeline
from eagle_contracts.spec.model import Contract, Pipeline, Value
from eagle_contracts.spec.position import Position

SUFFIXES: Final = (".yaml", ".yml")
PIPELINES: Final = ("pipeline.yaml", "pipeline.yml")
_NOT_ENTERED: Final = ("*.egg", ".*", "_darcs", "build", "CVS", "dist", "node_modules", "venv", "{arch}", "__pycache__")
"""The folders that pytest does not enter unless it is told otherwise."""


@dataclass(slots=True, kw_only=True)
class Catalog:
    """Reads each pipeline and contract once; `root` is the project's, messages show paths from `where`."""

    root: Path
    where: Path
    _pipelines: dict[Path, Pipeline | SpecError] = field(default_factory=dict)
    _contracts: dict[Path, Contract | SpecError] = field(default_factory=dict)

    def shown(self, path: Path) -> str:
        """Return a path as messages show it: from where the command was started, if it lies below."""
        for base in (self.where, self.root):
            if path.is_relative_to(base):
                return str(path.relative_to(base))
        return str(path)

    def pipeline_beside(self, path: Path) -> Pipeline:
        """Return the pipeline that a contract belongs to; raises `SpecError`."""
        folder = path.parent
        if folder not in self._pipelines:
            file = self._pipeline_file(path)
            try:
                self._pipelines[folder] = load_pipeline(file, self.shown(file))
            except SpecError as error:
                self._pipelines[folder] = error
        found = self._pipelines[folder]
        if isinstance(found, SpecError):
            raise found
        return found

    def contract(self, path: Path) -> Contract:
        """Return a contract, checked against the pipeline beside it; raises `SpecError`."""
        if path not in self._contracts:
            pipeline = self.pipeline_beside(path)
            try:
                self._contracts[path] = load_contract(path, pipeline, self.shown(path))
            except SpecError as error:
                self._contracts[path] = error
        found = self._contracts[path]
        if isinstance(found, SpecError):
            raise found
        return found

    def siblings(self, folder: Path) -> Siblings:
        """Return how contracts of one folder are found by name."""

        def find(name: str, named: Value) -> Contract:
            files = [folder / f"{name}{suffix}" for suffix in SUFFIXES]
            file = next((file for file in files if file.is_file()), None)
            if file is None:
                there = sorted(p.stem for p in folder.iterdir() if p.suffix in SUFFIXES and p.name not in PIPELINES)
                raise fail(named.position, f"no contract beside this one is called '{name}'", suggest(name, there))
            return self.contract(file)

        return find

    def _pipeline_file(self, path: Path) -> Path:
        file = next((path.parent / name for name in PIPELINES if (path.parent / name).is_file()), None)
        if file is None:
            raise fail(
                Position(path=self.shown(path), line=1, column=1),
                f"there is no {PIPELINES[0]} beside this file",
                "every YAML file under a contracts path is a contract or the pipeline beside it: write the "
                "pipeline, or move this file elsewhere",
            )
        return file


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


def _below(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        if path.suffix in SUFFIXES:
            yield path
        return
    for entry in sorted(path.iterdir(), key=lambda entry: entry.name):
        if not entry.is_dir() or not any(fnmatch.fnmatch(entry.name, pattern) for pattern in _NOT_ENTERED):
            yield from _below(entry)
