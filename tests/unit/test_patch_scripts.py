"""Scripts that patch an installed package in place: run on a copy, and stopped in words where they do else."""

from __future__ import annotations

from pathlib import Path

import pytest

from eagle_contracts.workers import patch_scripts
from eagle_contracts.workers.overlays import OverlayError

LOOP = "def layers():\n    return [1, 2, 3]\n"
IN_PLACE = """\
import an_engine.models.loop as loop

with open(loop.__file__) as file:
    text = file.read()
assert "[1, 2, 3]" in text
with open(loop.__file__, "w") as file:
    file.write(text.replace("[1, 2, 3]", "[1, 2]"))
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package on the import path, with a module two levels down."""
    models = tmp_path / "site" / "an_engine" / "models"
    models.mkdir(parents=True)
    for folder in (models, models.parent):
        (folder / "__init__.py").write_text("")
    (models / "loop.py").write_text(LOOP)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    return models.parent


def run(tmp_path: Path, script: str) -> tuple[dict[str, str], dict[str, str]]:
    """Run a script as a worker does."""
    file = tmp_path / "patch.py"
    file.write_text(script)
    return patch_scripts.run(str(file), "patches/patch.py", "an_engine")


def test_a_script_edits_a_copy(installed: Path, tmp_path: Path) -> None:
    """The edited module and what it was are returned, and the installed file is what it was."""
    edited, original = run(tmp_path, IN_PLACE)
    assert edited == {"an_engine.models.loop": "def layers():\n    return [1, 2]\n"}
    assert original == {"an_engine.models.loop": LOOP}
    assert (installed / "models" / "loop.py").read_text() == LOOP


def test_a_script_may_find_its_file_below_its_current_folder(installed: Path, tmp_path: Path) -> None:
    """As a patch that is run in site-packages does; a new module counts as an edit."""
    edited, original = run(tmp_path, "open('an_engine/models/dump.py', 'w').write('X = 1\\n')\n")
    assert (edited, original) == ({"an_engine.models.dump": "X = 1\n"}, {})


def test_a_script_that_fails_is_an_error_with_its_last_line(installed: Path, tmp_path: Path) -> None:
    """As it is where the engine was upgraded and the script's assertion no longer holds."""
    with pytest.raises(OverlayError) as error:
        run(tmp_path, "assert False, 'the loop is not where it was'\n")
    assert str(error.value) == (
        "patches/patch.py: the script ended with status 1: AssertionError: the loop is not where it was"
    )


def test_a_script_that_edits_nothing_is_an_error(installed: Path, tmp_path: Path) -> None:
    """A replacement that found nothing to replace would pass for a patch that changes nothing."""
    with pytest.raises(OverlayError) as error:
        run(tmp_path, IN_PLACE.replace('assert "[1, 2, 3]" in text\n', "").replace('"[1, 2, 3]",', '"[7]",'))
    assert str(error.value) == "patches/patch.py: the script ran and edited nothing of an_engine"


def test_a_script_that_reaches_the_installed_package_is_an_error(installed: Path, tmp_path: Path) -> None:
    """By an absolute path the script finds what is installed: that is said, with what to do about it."""
    with pytest.raises(OverlayError) as error:
        run(tmp_path, f"open({str(installed / 'models' / 'loop.py')!r}, 'a').write('# patched\\n')\n")
    assert str(error.value) == (
        f"patches/patch.py: the script changed the installed an_engine itself, at {installed}: it finds its file by "
        "another way than the import path or its current folder. Install an_engine again before anything else"
    )


def test_a_package_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    """There is nothing to copy."""
    with pytest.raises(OverlayError) as error:
        run(tmp_path, IN_PLACE)
    assert str(error.value) == "patches/patch.py: an_engine is not installed, so there is nothing to patch"
