"""One set of workers and one store for all tests on real engines."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from eagle_contracts.project import HOME_VARIABLE, home_folder

from .stories import ROOT, Engines, SharedPool


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engines]:
    """The environments of this checkout, in a project of its own whose twins and store are kept from run to run.

    What was observed is read again only while engines, overlays, twins and our own code are the same, as in any
    project; `make test-fresh` observes everything.
    """
    built = home_folder(ROOT) / "env"
    home = home_folder(ROOT) / "tests"
    home.mkdir(parents=True, exist_ok=True)
    if not (home / "env").is_symlink():
        (home / "env").symlink_to(built)
    pool = SharedPool()
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(HOME_VARIABLE, str(home))
        yield Engines(pool=pool, project=tmp_path_factory.mktemp("project"))
        pool.close()
