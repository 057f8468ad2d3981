"""`--contracts-require`: what must be there before a run counts as one."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator, Sequence
from pathlib import Path

from eagle_contracts.catalog import Catalog
from eagle_contracts.devices import Device, gpus
from eagle_contracts.session import Session
from eagle_contracts.spec.errors import SpecError, nearest
from eagle_contracts.spec.model import Environment, Pipeline
from eagle_contracts.workers.environments import Unavailable

GPU = "gpu"


def missing(wanted: Sequence[str], arguments: Sequence[Path], catalog: Catalog, session: Session) -> list[str]:
    """Return a sentence for each name that is not there: gpu, an environment, an engine or an installed package."""
    if not wanted:
        return []
    found = list(_environments(arguments, catalog))
    return [sentence for name in wanted if (sentence := _problem(name, found, session)) is not None]


def _problem(name: str, found: Sequence[tuple[Pipeline, Environment]], session: Session) -> str | None:
    if name == GPU:
        if not gpus():
            return "this machine has no GPU"
        unused = f"there is a GPU, and this run is on the CPU{_because(session.device)}: add --contracts-device=cuda"
        return None if session.device.is_gpu else unused
    meant = [(p, e) for p, e in found if name == e.name or (e.engine is not None and e.engine.name == name)]
    if not meant:
        return None if _installed(name) else _unknown(name, found)
    answers = [session.engines.environment(pipeline, environment) for pipeline, environment in meant]
    reasons = [answer.message for answer in answers if isinstance(answer, Unavailable)]
    return reasons[0] if len(reasons) == len(answers) else None


def _because(device: Device) -> str:
    return f" [{device.why}]" if device.why else ""


def _unknown(name: str, found: Sequence[tuple[Pipeline, Environment]]) -> str:
    known = sorted({GPU, *(e.name for _, e in found), *(e.engine.name for _, e in found if e.engine is not None)})
    near = nearest(name, known)
    return f"{name} is no environment, engine or installed package" + (f"; did you mean '{near}'?" if near else "")


def _installed(name: str) -> bool:
    try:
        importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def _environments(arguments: Sequence[Path], catalog: Catalog) -> Iterator[tuple[Pipeline, Environment]]:
    """Yield the environments of every pipeline below the run's paths; a broken pipeline has an item that says so."""
    for argument in arguments:
        place = Path(str(argument).partition("::")[0])
        folders = [place.parent] if place.is_file() else [file.parent for file in sorted(place.rglob("pipeline.y*ml"))]
        for folder in folders:
            try:
                pipeline = catalog.pipeline_beside(folder / "pipeline.yaml")
            except SpecError:
                continue
            for environment in pipeline.environments.values():
                yield pipeline, environment
