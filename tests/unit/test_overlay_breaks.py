"""What a control's break makes of an overlay, planned from files alone."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eagle_contracts.catalog import Catalog
from eagle_contracts.plan import Case, Planner, break_of

KIMI = Path(__file__).parents[2] / "contracts" / "kimi_k25"
WRITTEN = "overlay.layers: [2, 30, 58]"


def broken(folder: Path, text: str) -> Case:
    """Plan the dump's first control with another break."""
    pipeline = folder / "contracts" / "kimi_k25"
    shutil.copytree(KIMI, pipeline)
    file = pipeline / "dump_patch_layers.yaml"
    assert WRITTEN in file.read_text()
    file.write_text(file.read_text().replace(WRITTEN, text))
    catalog = Catalog(root=folder, where=folder)
    planner = Planner(
        pipeline=catalog.pipeline_beside(file), labels={}, overrides={}, siblings=catalog.siblings(pipeline)
    )
    return next(case for case in planner.cases(catalog.contract(file)) if case.name.startswith("catches-shifted"))


@pytest.mark.parametrize(
    ("text", "params"),
    [
        ("shift: {overlay.layers: +1}", {"layers": [4, 32, 60]}),
        ("overlay.layers: [2, 30, 58]", {"layers": [2, 30, 58]}),
        ("overlay.save: hidden_without_residual", {"save": "hidden_without_residual"}),
    ],
)
def test_a_break_of_an_overlay_starts_from_what_its_file_holds(
    tmp_path: Path, text: str, params: dict[str, object]
) -> None:
    """A shift moves the numbers of the file; a path sets them."""
    assert break_of(broken(tmp_path, text)) == {"overlay_params": params}


def test_a_break_may_put_another_overlay_on_the_engine(tmp_path: Path) -> None:
    """With `with.overlay` the case runs another patch than the contract names."""
    case = broken(tmp_path, "with.overlay: {script: patches/in_place.py}")
    assert case.overlay is not None
    assert case.overlay.data == {"script": "patches/in_place.py"}
    assert break_of(case) == {}
