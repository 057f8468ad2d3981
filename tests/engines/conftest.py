"""One set of workers and one store for all tests on real engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eagle_contracts.project import home_folder

from .stories import ROOT, Engines, SharedPool

KEPT = ("store", "twins")


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The environments of this checkout, in a project of its own whose twins and store are kept from run to run.

    What was observed is read again only while engines, overlays, twins and our own code are the same, as in any
    project; `make test-fresh` observes everything.
    """
    project = tmp_path_factory.mktemp("project")
    home, kept = home_folder(project), home_folder(ROOT) / "tests"
    home.mkdir(exist_ok=True)
    (home / "env").symlink_to(home_folder(ROOT) / "env")
    for name in KEPT:
        (kept / name).mkdir(parents=True, exist_ok=True)
        (home / name).symlink_to(kept / name)
    pool = SharedPool()
    yield Engines(pool=pool, project=project)
    pool.close()
