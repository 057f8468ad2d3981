"""Overlays: two literals that are read, and edits that fit the installed source or stop with file and line."""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from eagle_contracts.workers import overlays
from eagle_contracts.workers.overlays import OverlayError

SOURCE = "def answer():\n    first = 1\n    return first + PARAMS.get('more', 0)\n"
EDIT = {"module": "patched_engine", "versions": ">=0.1", "anchor": "    first = 1\n", "replacement": "    first = 41\n"}


def overlay(*edits: Mapping[str, object], params: str = "{}") -> str:
    return f"PARAMS = {params}\nEDITS = [\n" + "".join(f"    {edit!r},\n" for edit in edits) + "]\n"


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An installed engine of one module, version 0.5.9."""
    path = tmp_path / "patched_engine.py"
    path.write_text(SOURCE)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "0.5.9")
    before = list(sys.meta_path)
    yield path
    sys.meta_path[:] = before
    sys.modules.pop("patched_engine", None)


def install(text: str) -> dict[str, object] | None:
    return overlays.install({"text": text, "shown": "patches/one.py", "params": {}}, engine="engine")


UNREADABLE = {
    "syntax": ("EDITS = [\n", "patches/one.py:1: not Python: '[' was never closed"),
    "code": ("import os\nEDITS = []\n", "patches/one.py:1: an overlay holds only the two literals PARAMS and EDITS"),
    "another name": ("EDIT = []\n", "patches/one.py:1: an overlay holds only the two literals PARAMS and EDITS"),
    "nothing": (
        '"""Words."""\n',
        "patches/one.py:1: EDITS is missing: a list of maps with anchor, module, replacement, versions",
    ),
    "not a literal": (
        "EDITS = [\n    {'module': name()},\n]\n",
        "patches/one.py:1: must be a literal: an overlay is read, never executed",
    ),
    "no edit": ("EDITS = []\n", "patches/one.py:1: EDITS must be a list with at least one edit"),
    "a tuple": ("EDITS = (1, 2)\n", "patches/one.py:1: EDITS must be a list with at least one edit"),
    "an unknown key": (
        overlay({**EDIT, "where": "x"}),
        "patches/one.py:3: an edit is a map of texts with exactly anchor, module, replacement, versions",
    ),
    "a missing key": (
        overlay(EDIT, {"module": "x"}),
        "patches/one.py:4: an edit is a map of texts with exactly anchor, module, replacement, versions",
    ),
    "an empty anchor": (
        overlay({**EDIT, "anchor": ""}),
        "patches/one.py:3: an edit is a map of texts with exactly anchor, module, replacement, versions",
    ),
    "versions": (
        overlay({**EDIT, "versions": ">=0.5,~0.6"}),
        "patches/one.py:3: versions: '~0.6' is not one of ==, >=, <=, <, > and a version",
    ),
    "parameters": (overlay(EDIT, params="[1]"), "patches/one.py:1: PARAMS must be a map"),
}


@pytest.mark.parametrize("what", UNREADABLE)
def test_an_overlay_that_cannot_be_read_says_where(what: str) -> None:
    """File, line, and what was expected there."""
    text, message = UNREADABLE[what]
    with pytest.raises(OverlayError) as stopped:
        overlays.parse(text, "patches/one.py")
    assert str(stopped.value) == message


UNFITTING = {
    "nowhere": (
        {**EDIT, "anchor": "    second = 2\n"},
        "patches/one.py:3: the anchor (it begins 'second = 2') stands nowhere in patched_engine, and must stand there "
        "exactly once: the engine's source differs from what this edit was written for",
    ),
    "twice": (
        {**EDIT, "anchor": "first"},
        "patches/one.py:3: the anchor (it begins 'first') stands 2 times in patched_engine, and must stand there "
        "exactly once: the engine's source differs from what this edit was written for",
    ),
    "another version": (
        {**EDIT, "versions": ">=0.5.13"},
        "patches/one.py: no edit is for engine 0.5.9 (they are for >=0.5.13)",
    ),
    "another module": ({**EDIT, "module": "no_such.module"}, "patches/one.py:3: no_such.module is not installed"),
}


@pytest.mark.parametrize("what", UNFITTING)
def test_an_edit_that_does_not_fit_the_engine_says_why(what: str, engine: Path) -> None:
    """Nothing is patched by half: the first edit that does not fit stops all."""
    edit, message = UNFITTING[what]
    before = list(sys.meta_path)
    with pytest.raises(OverlayError) as stopped:
        install(overlay(edit))
    assert str(stopped.value) == message
    assert sys.meta_path == before


def test_the_edit_is_what_is_imported_and_nothing_installed_changes(engine: Path) -> None:
    """Whoever imports the module gets the edit and its parameters; the file stays as it was."""
    applied = install(overlay(EDIT, {**EDIT, "versions": ">=0.5.13", "anchor": "nowhere"}, params="{'more': 1}"))
    assert importlib.import_module("patched_engine").answer() == 42
    assert engine.read_text() == SOURCE
    assert applied is not None
    assert (applied["shown"], applied["modules"]) == ("patches/one.py", ["patched_engine"])
    assert "-    first = 1\n+    first = 41\n" in str(applied["diff"])


def test_the_same_edit_has_the_same_digest(engine: Path) -> None:
    """The digest is of the difference that was made, not of the overlay's text."""
    one, two = install(overlay(EDIT)), install(overlay(EDIT, params="{'unused': 1}"))
    other = install(overlay({**EDIT, "replacement": "    first = 40\n"}))
    assert one and two and other
    assert one["diff_digest"] == two["diff_digest"] != other["diff_digest"]


@pytest.mark.parametrize(
    ("version", "ranges", "fits"),
    [
        ("0.5.9", ">=0.5.5,<0.5.13", True),
        ("0.5.13", ">=0.5.5,<0.5.13", False),
        ("0.5.9.post1", ">=0.5.9", True),
        ("0.6", "==0.6.0", True),
        ("0.5.10", "<=0.5.9", False),
        ("0.5.9+cpu", "== 0.5.9", True),
    ],
)
def test_versions_are_compared_as_numbers(version: str, ranges: str, fits: bool) -> None:
    """0.5.13 is newer than 0.5.9."""
    assert overlays.matches(version, ranges) is fits
