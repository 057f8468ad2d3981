"""One set of workers and one store for all tests on real engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eagle_contracts.project import home_folder

from .stories import ROOT, Engines, SharedPool


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The environments of this checkout, in a project whose twins and store these tests write themselves."""
    project = tmp_path_factory.mktemp("project")
    home = home_folder(project)
    home.mkdir(exist_ok=True)
    (home / "env").symlink_to(home_folder(ROOT) / "env")
    pool = SharedPool()
    yield Engines(pool=pool, project=project)
    pool.close()
