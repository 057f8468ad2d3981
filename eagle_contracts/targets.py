"""A pipeline's two configs -> its twin, with errors that name the file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eagle_contracts.plan import widths_of
from eagle_contracts.real_draft import RealWidth, fc_widths
from eagle_contracts.spec.errors import fail
from eagle_contracts.spec.model import Pipeline
from eagle_contracts.twin import Twin, TwinError, make_twin


def twin_of(pipeline: Pipeline, *, for_kernels: bool = False) -> Twin:
    """Return the twin of a pipeline's target; raises `SpecError` naming the config that no twin can be made from."""
    target = _read(pipeline.target_config)
    if pipeline.target_part is not None:
        part = target.get(pipeline.target_part)
        if not isinstance(part, dict):
            raise fail(pipeline.document.at("target", "part"), f"{pipeline.target_config.name} has no such part")
        target = part
    draft = _read(pipeline.draft_config) if pipeline.draft_config is not None else None
    try:
        return make_twin(target, draft, for_kernels=for_kernels)
    except (TwinError, ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
        place = pipeline.document.at("target", "config")
        raise fail(place, f"no twin can be made from {pipeline.target_config.name}: {error}") from error


def _read(path: Path) -> Mapping[str, Any]:
    """Read a config whose syntax the specification has checked already."""
    data: dict[str, Any] = json.loads(path.read_text(encoding="utf-8-sig"))
    return data


def real_fc_of(pipeline: Pipeline) -> tuple[RealWidth, ...]:
    """Return how wide the real draft's `fc` is by its files; raises `SpecError` where one of them is damaged."""
    config = pipeline.draft_config
    try:
        return fc_widths(config, widths_of(pipeline)) if config is not None else ()
    except (OSError, ValueError) as error:
        raise fail(pipeline.document.at("draft", "config"), str(error)) from error
