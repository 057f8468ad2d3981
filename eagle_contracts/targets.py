"""A pipeline's two configs -> its twin, with errors that name the file and the key. PYTEST_DONT_REWRITE"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eagle_contracts.plan import widths_of
from eagle_contracts.real_checkpoint import checkpoint_faults
from eagle_contracts.real_draft import RealWidth, fc_widths
from eagle_contracts.spec.document import Document, load_json
from eagle_contracts.spec.draft_config import Unread, unread
from eagle_contracts.spec.draft_sizes import unusable, wrong_sizes
from eagle_contracts.spec.errors import SpecError, SpecIssue, fail
from eagle_contracts.spec.located import pick
from eagle_contracts.spec.model import Pipeline
from eagle_contracts.spec.paths import shown_beside
from eagle_contracts.spec.position import Position
from eagle_contracts.twin import Twin, TwinError, make_twin


def twin_of(pipeline: Pipeline, *, for_kernels: bool = False) -> Twin:
    """Return the twin of a pipeline's target; raises `SpecError` naming the config that no twin can be made from."""
    target = target_document(pipeline)
    draft = pipeline.draft_document.data if pipeline.draft_document is not None else None
    part = pick(target.data, (pipeline.target_part,) if pipeline.target_part else ())
    if not isinstance(part, dict):
        raise fail(pipeline.document.at("target", "part"), f"{pipeline.target_config.name} has no such part")
    if draft is not None and not isinstance(draft, dict):
        raise fail(pipeline.document.at("draft", "config"), "the draft's config is not a map")
    try:
        return make_twin(part, draft, for_kernels=for_kernels)
    except (TwinError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        place = key_named_in(str(error), pipeline) or target.at(*_inside(pipeline))
        raise fail(
            place,
            f"no twin can be made from {pipeline.target_config.name}: {error}",
            f"{pipeline.document.at('target', 'config')} names this file",
        ) from error


def target_document(pipeline: Pipeline) -> Document:
    """Return the target's config with the positions of its keys; raises `SpecError`."""
    name = str(pick(pipeline.document.data, ("target", "config")))
    return load_json(pipeline.target_config, shown_beside(pipeline.document.shown, name))


def key_named_in(text: str, pipeline: Pipeline) -> Position | None:
    """Return where the first key of the target's config that a text names stands there, or the value that it names."""
    return place_named_in(text, target_document(pipeline), _inside(pipeline))


def place_named_in(text: str, document: Document, inside: tuple[str, ...] = ()) -> Position | None:
    """Return where a config has what a text speaks of: the first key that it names, else the first text of a value."""
    config = pick(document.data, inside)
    keys: Mapping[str, Any] = config if isinstance(config, dict) else {}
    places = [(match.start(), key) for key in keys if (match := _word(key, text))]
    if not places:
        places = [(match.start(), key) for key in keys if (match := _word(_first_text(keys[key]), text))]
    return document.key_at(*inside, min(places)[1]) if places else None


def _inside(pipeline: Pipeline) -> tuple[str, ...]:
    return (pipeline.target_part,) if pipeline.target_part else ()


def _word(word: str, text: str) -> re.Match[str] | None:
    """Find a word in a text; short ones such as `n` could stand for anything."""
    return re.search(rf"(?<![\w.-]){re.escape(word)}(?![\w-])", text) if len(word) > 3 else None


def _first_text(value: object) -> str:
    first = value[0] if isinstance(value, list) and value else value
    return first if isinstance(first, str) else ""


def real_fc_of(pipeline: Pipeline) -> tuple[RealWidth, ...]:
    """Return how wide the real draft's `fc` is by its files.

    Raises `SpecError` for numbers that no draft can have, and for a checkpoint that is damaged or not of that config.
    """
    config, document = pipeline.draft_config, pipeline.draft_document
    if config is None or document is None:
        return ()
    check_draft(pipeline)
    data: Mapping[str, Any] = document.data if isinstance(document.data, dict) else {}
    target = pick(target_document(pipeline).data, _inside(pipeline))
    sizes = wrong_sizes(data, target if isinstance(target, dict) else {})
    issues = [_issue(one, document) for one in sizes]
    if issues:
        raise SpecError(issues)
    try:
        faults = list(checkpoint_faults(config))
        widths = fc_widths(config, widths_of(pipeline)) if not faults else ()
    except (OSError, ValueError) as error:
        faults, widths = [str(error)], ()
    place = pipeline.document.at("draft", "config")
    if faults:
        raise SpecError([SpecIssue(position=place, message=f"beside {config.name}: {fault}") for fault in faults])
    return widths


def check_draft(pipeline: Pipeline) -> None:
    """Raise `SpecError`, at its line, for a draft's config that no draft can be built from."""
    document = pipeline.draft_document
    if document is not None and isinstance(document.data, dict):
        issues = [_issue(one, document) for one in unusable(document.data)]
        if issues:
            raise SpecError(issues)


def unread_of(pipeline: Pipeline) -> tuple[Unread, ...]:
    """Return the keys of the draft's config.json, as it is, that say something to nobody."""
    data = pipeline.draft_document.data if pipeline.draft_document is not None else None
    return tuple(unread(data)) if isinstance(data, dict) else ()


def unread_issues(pipeline: Pipeline) -> list[SpecIssue]:
    """Return the same as mistakes, each at its line."""
    document = pipeline.draft_document
    return [_issue(one, document) for one in unread_of(pipeline)] if document is not None else []


def _issue(one: Unread, document: Document) -> SpecIssue:
    return SpecIssue(position=document.key_at(*one.path), message=one.sentence, hint=one.write)
