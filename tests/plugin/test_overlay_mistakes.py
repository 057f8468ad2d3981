"""An overlay, or a break of one, that does not fit: told at its own place, before or instead of an observation."""

from __future__ import annotations

import pytest

from .conftest import FOLDER, MAIN, Repository, flat, has_our_traceback, shown

PIPELINE = f"{FOLDER}/pipeline.yaml"
OVERLAY = f"{FOLDER}/patch.py"
TEXT = """PARAMS = {"layers": [3, 5], "save": "states", "folder": ""}
EDITS = [{"module": "toy_core", "versions": ">=1.0", "anchor": "SHIFT = 0", "replacement": "SHIFT = 0  # patched"}]
"""


@pytest.fixture
def patched(repository: Repository) -> Repository:
    """Both environments built, the second with an overlay."""
    repository.build("toy-1", "toy-2")
    repository.edit(PIPELINE, {"like: toy-1}": "like: toy-1, overlay: patch.py}"})
    repository.write(OVERLAY, TEXT)
    return repository


BREAKS = {
    "overlay.layer: [1]": "no overlay here has 'layer' in its PARAMS\n{line}  did you mean 'overlay.layers'?",
    "overlay.folder: elsewhere": "overlay.folder cannot be broken: each run puts its own folder there\n",
    "shift: {overlay.save: +1}": "shift moves a list of whole numbers, not the text 'states'\n",
    "shift: {overlay.nope: +1}": "no overlay here has 'nope' in its PARAMS\n",
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_break_of_an_overlay_that_finds_nothing_is_told_at_its_place(patched: Repository, broken: str) -> None:
    """Known without an engine: nothing is started for it."""
    patched.edit(MAIN, {"{break: {with.layer_ids: [-1, 2, 4]}, in: toy-1": f"{{break: {{{broken}}}, in: toy-2"})
    result = patched.run("-k", "embedding")
    text = shown(result)
    written = f"{{break: {{{broken}}}, in: toy-2"
    column = (patched.root / MAIN).read_text().splitlines()[10].index(f"{{{broken}") + 1
    line = f"      - {written}, as: embedding_in_slot}}\n    " + " " * (column - 1) + "^\n"
    first, _, rest = BREAKS[broken].partition("\n")
    assert f"{MAIN}:11:{column}: {first} " in flat(text)
    assert rest.replace("{line}", "") in text
    assert line.splitlines()[0].strip() in text
    assert not has_our_traceback(text)
    assert patched.starts() == 0


MISTAKES = {
    "nowhere": (
        {'SHIFT = 0"': 'SHIFT = 9"'},
        "error(overlay): contracts/toy/patch.py:2: the anchor (it begins 'SHIFT = 9') stands nowhere in",
    ),
    "other versions": (
        {">=1.0": "<0.9"},
        "error(overlay): contracts/toy/patch.py: no edit is for toy 1.0 (they are for <0.9)",
    ),
    "no such module": (
        {"toy_core": "toy_kore"},
        "error(overlay): contracts/toy/patch.py:2: toy_kore is not installed",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_an_overlay_that_does_not_fit_the_engine_is_told_with_its_line(patched: Repository, mistake: str) -> None:
    """Its own line, and the place that puts it on the engine; not a line of the worker."""
    edits, first = MISTAKES[mistake]
    patched.edit(OVERLAY, edits)
    result = patched.run("-k", "slots and toy-2")
    result.assert_outcomes(errors=1, deselected=5)
    text = shown(result)
    assert f"\n{first}\n" in text
    assert "\n  put on toy-2 by contracts/toy/pipeline.yaml:7\n" in text
    assert "Last lines printed" not in text
    assert not has_our_traceback(text)
