"""The file of an overlay that a pipeline or a contract names, read and checked without an engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.model import Pipeline, Value
from eagle_contracts.workers.overlays import OverlayError, parse


def read_overlay(value: Value, pipeline: Pipeline) -> Mapping[str, str]:
    """Return an overlay as workers are sent it; raises `SpecError` at the place that names it."""
    script, path, shown = _named(value, pipeline)
    try:
        text = path.read_text(encoding="utf-8")
        if script:
            return {"text": text, "shown": shown, "script": str(path)}
        parse(text, shown)
    except (OSError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, OverlayError):
            raise fail(value.position, str(error)) from error
        why = (error.strerror or error) if isinstance(error, OSError) else "it is not UTF-8"
        raise fail(value.position, f"the overlay {shown} cannot be read: {why}") from error
    return {"text": text, "shown": shown}


def overlay_params(value: Value, pipeline: Pipeline) -> Mapping[str, Any]:
    """Return an overlay's `PARAMS`; a patch script has none. Raises `SpecError` as `read_overlay` does."""
    overlay = read_overlay(value, pipeline)
    return {} if "script" in overlay else parse(overlay["text"], overlay["shown"]).params


def _named(value: Value, pipeline: Pipeline) -> tuple[bool, Path, str]:
    """Return whether an overlay is a patch script, its path, and how messages show that."""
    script = value.data.get("script") if isinstance(value.data, Mapping) else None
    named = script if script is not None else value.data
    if not isinstance(named, str) or not named:
        raise fail(value.position, "an overlay is the path of its file, or {script: PATH}")
    return script is not None, pipeline.folder / named, str(Path(pipeline.document.shown).parent / named)
