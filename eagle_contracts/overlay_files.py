"""Overlays as files beside a pipeline, read and never executed."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.model import Value
from eagle_contracts.workers.overlays import OverlayError, parse


def read_overlay(value: Value, folder: Path) -> dict[str, str]:
    """Return an overlay as a worker takes it; raises `SpecError` at the place that names it."""
    script = _script(value)
    shown = _shown(value)
    text = _text(value, folder)
    if script is not None:
        return {"text": text, "shown": shown, "script": str(folder / script)}
    _parsed(value, text)
    return {"text": text, "shown": shown}


def overlay_params(value: Value, folder: Path) -> Mapping[str, Any]:
    """Return an overlay's `PARAMS`, none for a script; raises `SpecError` at the place that names it."""
    return {} if _script(value) is not None else _parsed(value, _text(value, folder))


def params_line(value: Value, folder: Path) -> int:
    """Return the line on which `PARAMS` of an overlay that was found right begins."""
    for node in ast.parse(_text(value, folder)).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "PARAMS":
            return node.lineno
    return 1


def _script(value: Value) -> str | None:
    return str(value.data["script"]) if isinstance(value.data, Mapping) and "script" in value.data else None


def _shown(value: Value) -> str:
    return str(Path(value.position.path).parent / str(_script(value) or value.data))


def _text(value: Value, folder: Path) -> str:
    named = _script(value) or value.data
    if not isinstance(named, str) or not named:
        raise fail(value.position, "an overlay is the path of its file, or {script: PATH}")
    try:
        return (folder / named).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise fail(value.position, f"the overlay {_shown(value)} cannot be read: {why}") from error


def _parsed(value: Value, text: str) -> Mapping[str, Any]:
    try:
        return parse(text, _shown(value)).params
    except OverlayError as error:
        raise fail(value.position, str(error)) from error
