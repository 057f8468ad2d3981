"""One set of workers for all tests on real engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eagle_contracts.project import HOME_NAME

from .stories import ROOT, Engines, RememberingPool


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The environments of this checkout, with twins that these tests write themselves."""
    home = tmp_path_factory.mktemp("home")
    (home / "env").symlink_to(ROOT / HOME_NAME / "env")
    pool = RememberingPool()
    yield Engines(pool=pool, home=home)
    pool.close()
