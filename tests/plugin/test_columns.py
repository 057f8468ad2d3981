"""Everything that a run prints of its own fits 100 columns, whatever goes wrong."""

from __future__ import annotations

import re

from .conftest import FOLDER, MAIN, Repository, shown

PYTEST = re.compile(r"(SKIPPED|ERROR|FAILED|XFAIL|XPASS|PASSED) |rootdir: |platform |plugins: |cachedir: |.*\.yaml::")
"""Lines that pytest lays out."""


def test_every_line_fits_its_columns(repository: Repository) -> None:
    """Mistakes, violations, breaks, errors, engines that are missing: in one run, with long names."""
    long = "a_folder_with_a_name_that_is_rather_long/another_below"
    for name in ("target.config.json", "draft.config.json", "pipeline.yaml"):
        repository.write(f"contracts/{long}/{name}", (repository.root / FOLDER / name).read_text())
    capture = (repository.root / MAIN).read_text()
    repository.write(f"contracts/{long}/capture.yaml", capture.replace("run: toy.capture", "run: toy.captures"))
    repository.write(f"contracts/{long}/typo.yaml", capture.replace("expect:", "expects:").replace("why:", "whi:"))
    repository.edit(f"{FOLDER}/pipeline.yaml", {"toy-2:": "gone-1: {role: serve, engine: toy==9.0}\n  toy-2:"})
    repository.edit(MAIN, {"offset: 1": "offset: 0", "as: embedding_in_slot": "as: permuted"})
    for act in ("raise", "die", "refuse"):
        repository.write_faulty(act, name=act)
    repository.write_stage()
    result = repository.run("--contracts-set", "draft.layer_ids=[2,4,8]", "--contracts-set", "trained.final=final")
    for one in (result, repository.run("-p", "no:xdist"), repository.run("-k", "no_such_item_at_all")):
        lines = shown(one).splitlines()
        assert [line for line in lines if len(line) > 100 and not PYTEST.match(line)] == []
        assert "unknown key 'whi'" in shown(one) or "shifted: " in shown(one)
