"""`--contracts-require`: what must be there before a run counts as one."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path

from eagle_contracts.catalog import Catalog
from eagle_contracts.devices import Device, gpus
from eagle_contracts.session import Session
from eagle_contracts.spec.errors import SpecError, nearest
from eagle_contracts.spec.model import Environment, Pipeline, Requirement
from eagle_contracts.workers.environments import Resolved, Unavailable

GPU = "gpu"
_OPERATORS = ("=", "!", "<", ">")
_Place = tuple[Pipeline, Environment]


def wanted_in(text: str) -> list[str]:
    """Return the names in an option's text; a comma before an operator stands inside a range of versions."""
    names: list[str] = []
    for piece in text.split(","):
        if names and piece.strip()[:1] in _OPERATORS:
            names[-1] += f",{piece.strip()}"
        elif piece.strip():
            names.append(piece.strip())
    return names


def missing(wanted: Sequence[str], files: Sequence[Path], catalog: Catalog, session: Session) -> list[str]:
    """Return a sentence for each name that is not there: gpu, an environment, an engine or an installed package."""
    found = list(_environments(files, catalog))
    return [sentence for name in wanted if (sentence := _problem(name, found, session)) is not None]


def _problem(name: str, found: Sequence[_Place], session: Session) -> str | None:
    if name == GPU:
        if not gpus():
            return "this machine has no GPU"
        unused = f"there is a GPU, and this run is on the CPU{_because(session.device)}: add --contracts-device=cuda"
        return None if session.device.is_gpu else unused
    named = [(p, e) for p, e in found if name == e.name]
    if named:
        return _unavailable([session.engines.environment(p, e) for p, e in named])
    try:
        requirement = Requirement.parse(name)
    except ValueError as error:
        return str(error)
    meant = [(p, e) for p, e in found if e.engine is not None and e.engine.name == requirement.name]
    if not meant:
        return _not_installed(requirement, found)
    answers = [session.engines.environment(p, e) for p, e in meant]
    return _unavailable(answers) or _out_of_range(requirement, answers)


def _unavailable(answers: Sequence[Resolved | Unavailable]) -> str | None:
    reasons = [answer.message for answer in answers if isinstance(answer, Unavailable)]
    return reasons[0] if len(reasons) == len(answers) else None


def _because(device: Device) -> str:
    return f" [{device.why}]" if device.why else ""


def _out_of_range(requirement: Requirement, answers: Sequence[Resolved | Unavailable]) -> str | None:
    there = [answer for answer in answers if isinstance(answer, Resolved)]
    if not requirement.specifier or any(requirement.contains(one.engine_version or "") for one in there):
        return None
    listed = ", ".join(f"{one.label} has {one.engine_version or 'a version not known yet'}" for one in there)
    return f"no environment has {requirement} ({listed})"


def _not_installed(requirement: Requirement, found: Sequence[_Place]) -> str | None:
    name = requirement.name
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        known = sorted({GPU, *(e.name for _, e in found), *(e.engine.name for _, e in found if e.engine is not None)})
        near = nearest(name, known)
        return f"{name} is no environment, engine or installed package" + (f"; did you mean '{near}'?" if near else "")
    return None if requirement.contains(version) else f"{name} {version} is installed, and not {requirement}"


def _environments(files: Sequence[Path], catalog: Catalog) -> Iterator[_Place]:
    """Yield the environments of every pipeline beside the run's files; a broken one has an item that says so."""
    for folder in dict.fromkeys(file.parent for file in files):
        try:
            pipeline = catalog.pipeline_beside(folder / "pipeline.yaml")
        except SpecError:
            continue
        for environment in pipeline.environments.values():
            yield pipeline, environment
