"""`eagle-contracts run`: `pytest --contracts` under another name. PYTEST_DONT_REWRITE"""

from __future__ import annotations

from collections.abc import Sequence

from eagle_contracts.cli import OK

_HELP = """\
usage: eagle-contracts run [PYTEST ARGUMENT ...]

Run contracts: this is `pytest --contracts` with the arguments given.

examples:
  eagle-contracts run
  eagle-contracts run contracts/kimi_k25 -m 'not control'
  eagle-contracts run contracts/kimi_k25 --contracts-set 'draft.layer_ids=[2,30,58]'

`pytest --help` shows every argument.

exit codes: pytest's own, passed on: 0 all passed, 1 a contract failed or nothing was checked, 2 interrupted or a
mistake in a file, 3 an error inside pytest, 4 wrong usage, 5 nothing collected"""


def main(arguments: Sequence[str]) -> int:
    """Run pytest in this process and return its exit code."""
    if list(arguments) in (["-h"], ["--help"]):
        print(_HELP)
        return OK
    import pytest

    return int(pytest.main(["--contracts", *arguments]))
