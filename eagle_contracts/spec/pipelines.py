"""A pipeline file, checked as far as that goes without running anything, and built."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from eagle_contracts.spec.document import Document, load_json
from eagle_contracts.spec.environments import build_environments, check_environments
from eagle_contracts.spec.errors import SpecError, SpecIssue, suggest
from eagle_contracts.spec.flow import clip
from eagle_contracts.spec.located import check_references, known_names, pick, value_at
from eagle_contracts.spec.model import Pipeline
from eagle_contracts.spec.paths import is_file, shown_beside


def check_pipeline(document: Document) -> Iterator[SpecIssue]:
    """Yield what the schema cannot see, whether or not the schema found mistakes."""
    folder = document.path.parent
    known = known_names(final=declares_final(document))
    yield from _check_config(document, folder, "target")
    yield from _check_config(document, folder, "draft")
    yield from check_references(document, ("trained",), known)
    yield from check_environments(document, folder, known)


def build_pipeline(document: Document) -> Pipeline:
    """Return the pipeline of a document that was found right."""
    folder = document.path.parent
    draft = _config_name(document, "draft")
    part = pick(document.data, ("target", "part"))
    trained = pick(document.data, ("trained",))
    names = list(trained) if isinstance(trained, dict) else []
    return Pipeline(
        document=document,
        folder=folder,
        target_config=folder / str(_config_name(document, "target")),
        target_part=part if isinstance(part, str) else None,
        draft_config=folder / draft if draft else None,
        trained={name: value_at(document, "trained", name) for name in names},
        environments=build_environments(document),
        draft_document=_load_beside(document, folder, draft) if draft else None,
    )


def declares_final(document: Document) -> bool:
    """Tell whether a pipeline, or one of its environments, declares trained.final."""
    environments = pick(document.data, ("environments",))
    entries = list(environments) if isinstance(environments, dict) else []
    sets = [pick(document.data, ("environments", name, "set")) for name in entries]
    trained = pick(document.data, ("trained",))
    in_sets = any(isinstance(settings, dict) and "trained.final" in settings for settings in sets)
    return in_sets or (isinstance(trained, dict) and "final" in trained)


def _config_name(document: Document, model: str) -> str | None:
    name = pick(document.data, (model, "config"))
    return name if isinstance(name, str) and name else None


def _load_beside(document: Document, folder: Path, name: str) -> Document:
    return load_json(folder / name, shown_beside(document.shown, name))


def _check_config(document: Document, folder: Path, model: str) -> Iterator[SpecIssue]:
    name = _config_name(document, model)
    if name is None:
        return
    if not is_file(folder / name):
        yield _no_file(document, folder, name, model)
        return
    try:
        config = _load_beside(document, folder, name)
    except SpecError as error:
        yield from error.issues
        return
    yield from _check_parts(document, config, model)


def _no_file(document: Document, folder: Path, name: str, model: str) -> SpecIssue:
    """Say what stands there instead: nothing, a folder, or a link to nothing."""
    place = document.at(model, "config")
    try:
        is_folder, link = (folder / name).is_dir(), (folder / name).is_symlink()
    except (OSError, ValueError):
        is_folder = link = False
    if is_folder:
        message, hint = f"'{clip(name)}' is a folder, not a file", f"write {clip(name.rstrip('/'))}/config.json"
        return SpecIssue(position=place, message=message, hint=hint)
    if link:
        message = f"'{clip(name)}' is a link, and nothing is there"
        return SpecIssue(position=place, message=message, hint="mend the link, or name the file itself")
    message = f"there is no file '{clip(name)}' beside {document.path.name}"
    return SpecIssue(position=place, message=message, hint=_near_files(folder, name))


def _check_parts(document: Document, config: Document, model: str) -> Iterator[SpecIssue]:
    if not isinstance(config.data, dict):
        message = f"{config.path.name} holds no config: its outermost value is not a map"
        yield SpecIssue(position=document.at(model, "config"), message=message)
        return
    part = pick(document.data, (model, "part"))
    if isinstance(part, str) and part and not isinstance(config.data.get(part), dict):
        maps = [key for key, value in config.data.items() if isinstance(value, dict)]
        message = f"{config.path.name} has no part '{clip(part)}'"
        hint = suggest(part, maps, "parts") or "leave part out: the file holds one config"
        yield SpecIssue(position=document.at(model, "part"), message=message, hint=hint)


def _near_files(folder: Path, name: str) -> str | None:
    try:
        there = sorted(path.name for path in folder.iterdir() if path.suffix == ".json")
    except OSError:
        return None
    return suggest(name, there, "files there")
