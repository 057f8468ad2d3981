"""Files that a specification names, and what kind of file a path is."""

from __future__ import annotations

from pathlib import Path, PurePath
from typing import Final

from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.position import Position
from eagle_contracts.spec.validate import Kind

SUFFIXES: Final = (".yaml", ".yml")
_PIPELINES: Final = ("pipeline.yaml", "pipeline.yml")


def is_file(path: Path) -> bool:
    """Tell whether a file is there; no for a path that the system cannot look up."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def is_spec_file(path: Path) -> bool:
    """Tell whether a path names a contract or a pipeline: it ends in .yaml or .yml."""
    return path.suffix in SUFFIXES


def kind_of(path: Path, shown: str | None = None) -> Kind:
    """Return `pipeline` for pipeline.yaml or .yml, `contract` for any other YAML file.

    Raises SpecError if it is no YAML file, or a contract without a pipeline beside it.
    """
    if path.name in _PIPELINES:
        return "pipeline"
    pipeline_beside(path, shown)
    return "contract"


def pipeline_beside(path: Path, shown: str | None = None) -> Path:
    """Return the pipeline file that stands beside a contract; raises SpecError if there is none, or two."""
    start = Position(path=shown or str(path), line=1, column=1)
    if not is_spec_file(path):
        raise fail(start, "is not a contract", "contracts end in .yaml or .yml")
    there = [path.parent / name for name in _PIPELINES if is_file(path.parent / name)]
    if not there:
        raise fail(start, "has no pipeline.yaml beside it", f"write {PurePath(start.path).parent / 'pipeline.yaml'}")
    if len(there) > 1:
        raise fail(start, "has both pipeline.yaml and pipeline.yml beside it", "keep one of them")
    return there[0]


def shown_beside(shown: str, name: str) -> str:
    """Return how messages show a file whose path is relative to a shown file's folder."""
    return str(PurePath(shown).parent / name)
