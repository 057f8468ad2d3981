"""Stands for the story's overlay: the pipeline only names it."""

PARAMS: dict[str, object] = {}
EDITS: list[dict[str, object]] = []
