"""What `validate`, `list` and `explain` have in common: which files, and the cases of each. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from eagle_contracts.catalog import PIPELINES, SUFFIXES, Catalog, spec_files
from eagle_contracts.cli import USAGE
from eagle_contracts.cli.words import Complaint
from eagle_contracts.plan import Case, Planner
from eagle_contracts.project import contracts_paths, project_root
from eagle_contracts.spec.errors import SpecError, suggest
from eagle_contracts.spec.model import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A project's catalog and the files chosen in it, in the order of a run."""

    catalog: Catalog
    files: tuple[Path, ...]

    def mistakes_or_cases(self, labels: Mapping[str, str]) -> Iterator[tuple[Path, list[Case] | SpecError]]:
        """Yield each contract's cases, or what is wrong with the file; a right pipeline yields nothing."""
        for file in self.files:
            try:
                pipeline = self.catalog.pipeline_beside(file)
                if file.name != pipeline.document.path.name:
                    yield file, planner_of(self.catalog, file, labels).cases(self.catalog.contract(file))
            except SpecError as error:
                yield file, error


def select(paths: Sequence[Path]) -> Selection:
    """Return what `pytest --contracts` would take for these paths; raises `Complaint` where one is not there."""
    here = Path.cwd()
    given = [Path(os.path.normpath(here / path)) for path in paths]
    for path, shown in zip(given, paths, strict=True):
        if not path.exists():
            raise Complaint(_not_there(path, shown), USAGE)
        if path.is_file() and path.suffix not in SUFFIXES:
            raise Complaint(f"{shown} is no contract: contracts end in .yaml or .yml", USAGE)
    folders = [path if path.is_dir() else path.parent for path in given] or [here]
    root = project_root(Path(os.path.commonpath(folders)), here)
    catalog = Catalog(root=root, where=here)
    inside = contracts_paths(root)
    if not given:
        below = here != root and here.is_relative_to(root)
        given = [here] if below else [path for path in inside if path.exists()]
    files = spec_files(given, inside)
    if not files:
        looked = ", ".join(catalog.shown(path) for path in given or inside)
        raise Complaint(f"there is no contract in {looked}: name a folder, or write a first contract there")
    return Selection(catalog=catalog, files=files)


def planner_of(catalog: Catalog, file: Path, labels: Mapping[str, str], overrides: Mapping[str, Value] = {}) -> Planner:
    """Return the planner of a contract file's pipeline."""
    pipeline = catalog.pipeline_beside(file)
    return Planner(pipeline=pipeline, labels=labels, overrides=overrides, siblings=catalog.siblings(pipeline.folder))


def is_pipeline(file: Path) -> bool:
    """Tell whether a file is a pipeline, by its name."""
    return file.name in PIPELINES


def _not_there(path: Path, shown: Path) -> str:
    folder = path.parent
    there = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    near = suggest(path.name, there, "there is") if there else None
    if "::" in str(shown):
        return f"{shown} names an item; give the file or the folder: {str(shown).partition('::')[0]}"
    return f"there is no file or folder {shown}" + (f": {near}" if near and near.startswith("did") else "")
